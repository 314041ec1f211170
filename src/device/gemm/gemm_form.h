// The operands of a matrix product as gemm.cpp plans it, and which of the forms that give the same bits is the fastest: A where it lies or
// packed, the product or its transpose. Included only by gemm.cpp.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace ingot {

/// What all problems of a call share.
struct GemmLayout {
  DType a_type, b_type, c_type, bias_type;
  bool a_transposed, b_transposed, b_packed;
  int64_t lda, ldb, ldc;
  bool pairs =
      false;  ///< both operands are, or count as, bf16: a step of the chains is two k (gemm_kernels.h)
  bool lower_only = false;    ///< only tiles that touch the diagonal or lie below it
  bool c_transposed = false;  ///< C is stored [n, m], the bias is one of rows
};

struct GemmProblem {
  int64_t m, n, depth;  ///< depth: k, in elements
  const void* a;
  const void* b;
  void* c;
  const void* bias;
  bool accumulate;
};

inline bool is_operand(DType t) {
  return t == DType::f32 || t == DType::bf16;
}

/// The same product by its transpose, Cᵀ = op(B)ᵀ op(A)ᵀ.
inline void transpose(GemmLayout& layout, std::vector<GemmProblem>& problems) {
  std::swap(layout.a_type, layout.b_type);
  std::swap(layout.lda, layout.ldb);
  const bool a_transposed = layout.a_transposed;
  layout.a_transposed = !layout.b_transposed;
  layout.b_transposed = !a_transposed;
  layout.c_transposed = true;
  for (GemmProblem& p : problems) std::swap(p.m, p.n), std::swap(p.a, p.b);
}

/// Whether A stored [k, m] is read where it lies: where few columns would repay packing it, unless its columns are a multiple of
/// 4 KiB apart, which share a set of the caches.
inline bool reads_columns(const GemmLayout& layout, int64_t n) {
  constexpr int64_t kFewColumns = 1536;
  return layout.a_type == DType::f32 && !layout.pairs && n <= kFewColumns &&
         layout.lda * size_of(DType::f32) % 4096 != 0;
}

/// Whether that is faster for an average m x n x k. A tall TN packs the smaller operand (B is packed by the way), which must repay
/// turning C; of NT, weights for few rows are read in place instead of being turned for them, and the rows turned instead, which must save
/// twice what turning C costs.
inline bool faster_transposed(const GemmLayout& layout, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kFewRows = 64;
  if (layout.b_packed || layout.lower_only || !is_operand(layout.b_type))
    return false;  // A is not rounded while it is packed
  if (layout.a_transposed) return !layout.b_transposed && k * (m - n) >= m * n && !reads_columns(layout, m);
  return layout.b_transposed && layout.a_type == layout.b_type && m < n &&
         (m <= kFewRows || k * (n - m) >= 2 * m * n);
}

}  // namespace ingot
