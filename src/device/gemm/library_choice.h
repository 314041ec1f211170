// cuBLASLt in place of our own products of bf16 on the device cuda, where INGOT_PRODUCTS=cublaslt asks for
// it. For each form of product (all sizes and strides but the number of rows, or of k where those are rows)
// an algorithm is chosen once, on the device, and taken for every number of rows: the first that neither
// splits k nor reduces, and that gives rows alone the bits that they have among 4,096. So a row's bits do not
// depend on what stands beside it, as far as that shows. What has no such algorithm, our kernels multiply.
#pragma once
#include <compare>
#include <map>
#include <memory>
#include <string>

#include "device/gemm/library_product.h"

namespace ingot {

/// Of one thread: not thread-safe.
class LibraryChoice {
 public:
  LibraryChoice(CudaDevice& device, const cublaslt::Library& library);

  /// Asks for the product in the thread's compute stream; false: ours must multiply those of its form. Its
  /// operands are bf16 at multiples of 16 bytes, and so are their strides; nothing is added but C. Errors of
  /// the library, also where it refuses the form's algorithm for this number of rows. A form's first product
  /// waits for the device, and may not be in a graph's capture.
  bool multiply(const GpuMmaProduct& product);

 private:
  struct Form {
    int64_t m, n, k;  ///< 0: any
    int64_t a_row, a_k, b_k, b_column, c_row;
    DType c_type;
    auto operator<=>(const Form&) const = default;
  };
  static Form form_of(const GpuMmaProduct& product);
  std::unique_ptr<LibraryProducts::Plan> choose(GpuMmaProduct product) const;
  bool keeps_rows(const LibraryProducts::Plan& plan, const GpuMmaProduct& product) const;

  CudaDevice& device_;
  const LibraryProducts products_;
  std::map<Form, std::unique_ptr<LibraryProducts::Plan>> chosen_;  ///< nullptr: none
};

/// The calling thread's, where its kernels run on the device cuda and it was asked for; nullptr: ours
/// multiply. Error: INGOT_PRODUCTS has another value than "own" or "cublaslt", or cuBLASLt does not open.
LibraryChoice* library_of_thread();
/// "cuBLASLt 13.1.0" where it multiplies on the process's device cuda; "" where ours do. Errors as
/// library_of_thread().
std::string library_that_multiplies();
/// As INGOT_PRODUCTS says it: for tests.
void set_products(const std::string& name);

}  // namespace ingot
