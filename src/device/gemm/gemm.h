// Matrix products on the CPU: C (+)= op(A) op(B), grouped products for experts, weights packed once, and the
// symmetric product of Newton-Schulz.
//
// Contract (docs/numerics.md rule 2): each output element is acc = fma(a, b, acc) in fp32 over ascending k,
// from 0 or (accumulate) from C, then + bias, then one rounding if C is bf16. bf16 operands are widened
// exactly; B of f32 may be rounded to bf16 first (round_b). Where both operands are bf16, k goes in pairs,
// the odd one first (1, 0, 3, 2, ...; an odd k ends with a 0), and subnormal operands, sums and results are
// zeros: what the processor's dot product does. So every result has the bits of the naive loop, whatever m,
// n, the threads and the instruction set; k = 0 gives 0 (or C), m = 0 or n = 0 do nothing.
//
// Thread-safe; uses the pool of base/parallel.h; allocates nothing once its scratch has grown. A, B and C may
// not overlap. B is packed into a kc x nc panel that stays in the level 2 cache; A is read in place, or
// packed through 8 MiB of scratch for each thread. Where it is cheaper, C transposed = op(B) transposed op(A)
// transposed is computed; the bits are the same because each output's order of k is. A table of the machine
// may choose for single products (product_choices.h). Sources: Goto and van de Geijn (2008); Van Zee and van
// de Geijn, BLIS (2015).
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace ingot {

class PackedWeights;

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;  ///< f32 or bf16, [m, k], or [k, m] when a_transposed
  DType a_type = DType::f32;
  bool a_transposed = false;
  int64_t lda = 0;          ///< elements from row to row as stored
  const void* b = nullptr;  ///< f32 or bf16, [k, n], or [n, k] (weights as [out, in]) when b_transposed
  DType b_type = DType::f32;
  bool b_transposed = false;
  int64_t ldb = 0;
  const PackedWeights* packed = nullptr;  ///< used instead of b, b_type, b_transposed and ldb
  void* c = nullptr;                      ///< f32 or bf16, [m, n]
  DType c_type = DType::f32;
  int64_t ldc = 0;
  bool accumulate = false;     ///< sums start from C; f32 C only
  const void* bias = nullptr;  ///< [n], added last
  DType bias_type = DType::f32;
  bool round_b = false;  ///< B is f32, and is read as its rounding to bf16
};

void gemm(const GemmArgs& args);

/// One product per expert e over the rows offsets[e] .. offsets[e+1].
struct GroupedGemmArgs {
  int64_t experts = 0;
  const int64_t* offsets = nullptr;  ///< [experts + 1], ascending, offsets[0] >= 0
  int64_t n = 0;
  int64_t k = 0;
  const void* a = nullptr;
  DType a_type = DType::f32;
  int64_t lda = 0;
  const void* b = nullptr;
  DType b_type = DType::f32;
  bool b_transposed = false;
  int64_t ldb = 0;
  int64_t b_stride = 0;                   ///< elements from expert to expert
  const PackedWeights* packed = nullptr;  ///< gemm_grouped only; one matrix per expert
  void* c = nullptr;
  DType c_type = DType::f32;
  int64_t ldc = 0;
  int64_t c_stride = 0;  ///< gemm_grouped_weight only
  bool accumulate = false;
  const void* bias = nullptr;  ///< gemm_grouped only: [experts, n]
  DType bias_type = DType::f32;
  bool round_b = false;  ///< B is f32, and is read as its rounding to bf16
};

/// Forward and input gradient: C[r, :] (+)= A[r, :] op(B_e) for the rows r of expert e. A [rows, k], C [rows,
/// n].
void gemm_grouped(const GroupedGemmArgs& args);

/// Weight gradient: C_e[n, k] (+)= sum over the rows r of expert e of A[r, 0..n) outer B[r, 0..k), rows
/// ascending. A (the output's gradient) is [rows, n], B (the input) is [rows, k], C is [experts, n, k] by
/// c_stride and ldc; b_transposed must be false. An expert without rows gets C_e = 0 (unchanged when
/// accumulating).
void gemm_grouped_weight(const GroupedGemmArgs& args);

/// A symmetric product, all m x m elements of it, with half the work: the upper triangle is copied from the
/// lower one. Without b it is C = A times A transposed and has the bits of gemm ((i, j) and (j, i) multiply
/// the same pairs in the same order). With b the caller knows that C = op(A) op(B) is symmetric but for
/// rounding: symmetric matrices that commute. bias and accumulate must be unset.
void gemm_symmetric(const GemmArgs& args);

/// How many k of a column share a scale where weights are int8.
inline constexpr int64_t kInt8Block = 128;

/// B packed once for many products (decoding, evaluation): micro-panels of columns, each contiguous over k,
/// in huge pages. Valid for the instruction set that was active when it was made. The source has `experts`
/// matrices, b_stride elements apart.
///
/// `stored` is the type of the packed elements: that of B's values; f32 for bf16 values by which f32 rows are
/// multiplied; or u8 for int8 numbers q with |q| <= 127 and an f32 scale s for each kInt8Block of k of a
/// column (s = largest magnitude / 127, q = weight / s to the nearest). Every product then has the bits of
/// one by the f32 matrix q s, each rounded once; docs/numerics.md rule 9.
class PackedWeights {
 public:
  /// B as in GroupedGemmArgs.
  struct Source {
    const void* b = nullptr;
    DType b_type = DType::f32;
    bool round_b = false;
    bool b_transposed = true;
    int64_t k = 0, n = 0, ldb = 0;
    int64_t experts = 1, b_stride = 0;
  };
  PackedWeights(const Source& source, DType stored);
  /// Packs other values of the same shape and type into the same memory.
  void fill(const Source& source);
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;
  PackedWeights(PackedWeights&& other) noexcept;
  PackedWeights& operator=(PackedWeights&& other) noexcept;

  const void* data() const { return data_; }
  DType type() const { return type_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t experts() const { return experts_; }
  /// Elements of one expert, padding included; for int8 bytes, with the scales.
  int64_t stride() const { return stride_; }
  /// Columns of a micro-panel, nr of the instruction set it was packed for.
  int64_t panel() const { return panel_; }
  int64_t bytes() const;
  /// The k elements of a column of B, exactly as products see them.
  void column(int64_t expert, int64_t column, float* out) const;

 private:
  void* data_ = nullptr;
  DType type_;
  int64_t k_, n_, experts_, stride_ = 0, panel_ = 0, lanes_ = 0;
};

}  // namespace ingot
