// Products of bf16 by NVIDIA's cuBLASLt (device/cuda/cublaslt.h), on the device cuda: what ours are measured
// beside. Only algorithms that neither split k nor reduce are taken, whose outputs are one accumulator each,
// as those of launch_mma_product() are. Whether a row has the same bits alone and among others is the
// library's matter: library_choice.h, by which ops take them, tries it. Not thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda_device.h"
#include "device/gemm/gpu_product.h"

namespace ingot {

class LibraryProducts {
 public:
  /// Error where the library gives no handle.
  LibraryProducts(CudaDevice& device, const cublaslt::Library& library);
  ~LibraryProducts();
  LibraryProducts(const LibraryProducts&) = delete;
  LibraryProducts& operator=(const LibraryProducts&) = delete;

  /// A product with an algorithm of the library; it belongs to its LibraryProducts.
  class Plan {
   public:
    /// Asks for it in the thread's compute stream. Error where the library refuses it.
    void operator()() const;
    /// Asks for it too; false where the library refuses it, though it suggested the algorithm.
    bool runs() const;
    ~Plan();
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;

   private:
    friend class LibraryProducts;
    Plan(const LibraryProducts& of, const GpuMmaProduct& product);
    cublaslt::Status ask() const;
    const LibraryProducts& of_;
    const GpuMmaProduct product_;
    cublaslt::Operation operation_ = nullptr;
    cublaslt::Layout first_ = nullptr, second_ = nullptr, result_ = nullptr;
    cublaslt::Algorithm algorithm_{};
    size_t workspace_ = 0;
  };

  /// The product of these operands by up to `most` algorithms, the library's best guess first; empty where it
  /// has none that may be taken. Operands are bf16, without a bias, `plus` or epilogue. Errors of
  /// the library.
  std::vector<std::unique_ptr<Plan>> plans(const GpuMmaProduct& product, int most = 8) const;
  /// Another product by a plan's algorithm; nullptr: the library does not take it there.
  std::unique_ptr<Plan> by_algorithm_of(const Plan& plan, const GpuMmaProduct& product) const;
  /// The same of one row of the plan's product alone.
  std::unique_ptr<Plan> row_of(const Plan& plan, int64_t row) const;

 private:
  /// Without an algorithm.
  std::unique_ptr<Plan> make(const GpuMmaProduct& product) const;
  void check(cublaslt::Status status, const char* what) const;
  bool may_be_taken(const cublaslt::Suggestion& suggestion) const;

  CudaDevice& device_;
  const cublaslt::Library library_;
  cublaslt::Handle handle_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace ingot
