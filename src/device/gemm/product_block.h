// One block's work on the exact product on a GPU: 64 x 64 outputs, 16 outputs a thread, 16 of k at a time
// through shared memory. No output's chain is cut. For *.cu.
#pragma once
#include "device/gemm/product_tiles.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kTile = 64, kStepK = 16, kSide = 16, kEach = kTile / kSide;
constexpr int kProductThreads = kSide * kSide;

/// [k][row or column]; the padding keeps stores of neighbours in other banks.
struct ProductTile {
  float x[kStepK][kTile + 1];
};

/// Loads elements (first + i, k + kk) for i < kTile and kk < kStepK of a matrix of `count` rows; what does
/// not exist stays as it is, and no chain reads it.
template <class T>
INGOT_INLINE void load_tile(ProductTile& tile, const T* from, int64_t row, int64_t column, int64_t first,
                            int64_t count, int64_t k, int64_t depth) {
  for (int e = static_cast<int>(thread_index()); e < kTile * kStepK; e += kProductThreads) {
    // Neighbours read what lies beside each other.
    const int i = column == 1 ? e / kStepK : e % kTile, kk = column == 1 ? e % kStepK : e / kTile;
    if (first + i < count && k + kk < depth)
      tile.x[kk][i] = widened(from[(first + i) * row + (k + kk) * column]);
  }
}

/// The thread's outputs of the 64 x 64 from (first_row, first_column) on, as sums; every thread of the block
/// comes here, and both tiles are free once it returns.
template <class A = float, class B = float, class C = float>
INGOT_INLINE void product_sums(const GpuProduct& p, int64_t first_row, int64_t first_column, ProductTile& a,
                               ProductTile& b, float (&sum)[kEach][kEach]) {
  const int thread_row = static_cast<int>(thread_index()) / kSide,
            thread_column = static_cast<int>(thread_index()) % kSide;
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) INGOT_UNROLL
  for (int c = 0; c < kEach; ++c) {
    const int64_t i = first_row + thread_row + r * kSide, j = first_column + thread_column + c * kSide;
    sum[r][c] = 0.0f;
    if constexpr (sizeof(C) == sizeof(float))
      if (p.accumulate && i < p.m && j < p.n) sum[r][c] = static_cast<const C*>(p.c)[i * p.c_row + j];
  }
  for (int64_t k = 0; k < p.k; k += kStepK) {
    load_tile(a, static_cast<const A*>(p.a), p.a_row, p.a_k, first_row, p.m, k, p.k);
    load_tile(b, static_cast<const B*>(p.b), p.b_column, p.b_k, first_column, p.n, k, p.k);
    sync_threads();
    const int depth = p.k - k < kStepK ? static_cast<int>(p.k - k) : kStepK;
    for (int kk = 0; kk < depth; ++kk) {
      float row[kEach], column[kEach];
      INGOT_UNROLL
      for (int r = 0; r < kEach; ++r) row[r] = a.x[kk][thread_row + r * kSide];
      INGOT_UNROLL
      for (int c = 0; c < kEach; ++c) column[c] = b.x[kk][thread_column + c * kSide];
      INGOT_UNROLL
      for (int r = 0; r < kEach; ++r) INGOT_UNROLL
      for (int c = 0; c < kEach; ++c) sum[r][c] = fma_rn(row[r], column[c], sum[r][c]);
    }
    sync_threads();
  }
}

/// Output block number `block` of those that lie row by row; every thread of the block comes here.
template <class A = float, class B = float, class C = float>
INGOT_INLINE void product_block(const GpuProduct& p, int64_t block, ProductTile& a, ProductTile& b) {
  const int64_t columns = tiles_of<kTile>(p.n);
  const int64_t first_row = block / columns * kTile, first_column = block % columns * kTile;
  const int thread_row = static_cast<int>(thread_index()) / kSide,
            thread_column = static_cast<int>(thread_index()) % kSide;
  float sum[kEach][kEach];
  product_sums<A, B, C>(p, first_row, first_column, a, b, sum);
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) INGOT_UNROLL
  for (int c = 0; c < kEach; ++c) {
    const int64_t i = first_row + thread_row + r * kSide, j = first_column + thread_column + c * kSide;
    if (i >= p.m || j >= p.n) continue;
    C& to = static_cast<C*>(p.c)[i * p.c_row + j];
    float result = sum[r][c];
    if (sizeof(C) < sizeof(float) && p.accumulate) result = add_rn(widened(to), result);
    store_one(&to, with_bias(p, result, j));
  }
}

}  // namespace ingot::INGOT_ISA
