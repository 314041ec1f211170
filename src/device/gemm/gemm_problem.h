// One matrix product as gemm.cpp plans it, and the choice among the forms that give the same bits: A in place
// or packed, the product or its transpose. Rules choose, unless a ProductChoice does. Internal to this
// folder.
#pragma once
#include <cstdint>
#include <utility>

#include "base/dtype.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/product_choices.h"

namespace ingot {

/// The problems of a grouped call differ in their sizes and bases only.
struct GemmProblem {
  int64_t m = 0, n = 0, depth = 0;  ///< depth: k, in elements
  GemmOperand a, b;                 ///< b of PackedWeights: base and type
  GemmResult c;
  bool accumulate = false;
  bool b_packed = false;
  bool pairs = false;  ///< both operands are bf16, or are rounded to it: a k-step is two k (gemm_kernels.h)
  bool lower_only = false;  ///< only tiles that touch the diagonal or are below it
};

inline bool is_operand(DType t) {
  return t == DType::f32 || t == DType::bf16;
}

/// The same product by its transpose, Cᵀ = Bᵀ Aᵀ. The bits are the same because the order of k is.
inline void transpose(GemmProblem& p) {
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  p.c.transposed = true;
}

/// Whether A stored [k, m] is read in place, mr rows at a time: where there are too few columns to repay
/// packing it, unless its lines are a multiple of 4 KiB apart, which share a set of the caches, or a tile
/// reads less than half of each cache line (with AVX2 2304x768x1024 TN runs at .51 of peak so, and at .73
/// where A is packed).
inline bool reads_columns(const GemmProblem& p, int64_t n, int64_t mr) {
  constexpr int64_t kFewColumns = 1536, kHalfLine = 8;
  return p.a.type == DType::f32 && !p.pairs && n <= kFewColumns && mr >= kHalfLine &&
         p.a.ld() * size_of(DType::f32) % 4096 != 0;
}

/// Whether a tile's rows of A, read in place, fill a set of the level 1 cache of `ways` lines, so that those
/// of B push them out; where packing repays. With 8 ways 1024x1024x4096 NT ran at .84 of peak so, and at .91
/// where A is packed; 1024x3072x1024 NN at .84 and .92.
inline bool rows_fill_a_set(const GemmProblem& p, int64_t mr, int64_t ways) {
  constexpr int64_t kRows = 128, kColumns = 384;
  return ways > 0 && ways <= mr && p.a.ld() * size_of(p.a.type) % 4096 == 0 && p.m >= kRows &&
         p.n >= kColumns;
}

/// Whether A can be read in place. Pairs need whole words, of which columns have none.
inline bool can_be_in_place(const GemmProblem& p) {
  if (p.depth == 0) return false;
  if (p.pairs) return p.a.k_contiguous() && p.depth % 2 == 0 && p.a.ld() % 2 == 0;
  return p.a.type == DType::f32;
}

/// Whether A is not packed.
inline bool in_place(const GemmProblem& p, int64_t mr, int64_t ways, const ProductChoice& choice) {
  if (!can_be_in_place(p)) return false;
  const bool rule = p.a.k_contiguous() ? !rows_fill_a_set(p, mr, ways) : reads_columns(p, p.n, mr);
  return choice.in_place.value_or(rule);
}

/// Only B can be rounded, while it is packed.
inline bool can_be_transposed(const GemmProblem& p) {
  return !p.b_packed && !p.lower_only && !p.b.round;
}

/// Whether the transpose is faster for products like p of m x n x k, which are averages over experts.
/// - A stored [k, m], B [k, n] (weight gradients), m > n: packs the smaller operand, as B is packed on the
///   way, where that saves more than transposing C costs (3072x768x1024 421 -> 440 GFLOP/s, bf16 709 -> 805).
/// - A stored [m, k], B [n, k] (weights), few rows: reads the weights in place and transposes the rows
///   instead, where that saves twice what transposing C costs (32x768x384 341 -> 404 GFLOP/s, bf16 675 ->
///   796).
inline bool transpose_is_faster(const GemmProblem& p, int64_t m, int64_t n, int64_t k, int64_t mr) {
  constexpr int64_t kFewRows = 64;
  if (!can_be_transposed(p)) return false;
  if (!p.a.k_contiguous()) return !p.b.k_contiguous() && k * (m - n) >= m * n && !reads_columns(p, m, mr);
  return p.b.k_contiguous() && p.a.type == p.b.type && m < n && (m <= kFewRows || k * (n - m) >= 2 * m * n);
}

/// Whether products like p are computed by their transpose.
inline bool is_by_transpose(const GemmProblem& p, int64_t m, int64_t n, int64_t k, int64_t mr,
                            const ProductChoice& choice) {
  if (choice.transposed) return *choice.transposed && can_be_transposed(p);
  return transpose_is_faster(p, m, n, k, mr);
}

}  // namespace ingot
