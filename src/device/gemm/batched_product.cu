// Exact products of many matrices of one shape on a GPU, and symmetric ones, by blocks of product_block.h.
#include "device/gemm/product_block.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_KERNEL(kProductThreads)
batched_product_kernel(const GpuBatchedProduct batch) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  const int64_t blocks = blocks_of<kTile>(batch.first);
  product_block(product_of(batch, block_index() / blocks), block_index() % blocks, a, b);
}

/// What lies below the diagonal, above it: by way of `tile`, so that neighbours write beside each other.
INGOT_INLINE void store_mirrored(const GpuProduct& p, int64_t first_row, int64_t first_column,
                                 const float (&sum)[kEach][kEach], ProductTile& tile) {
  const int thread = static_cast<int>(thread_index()), thread_row = thread / kSide,
            thread_column = thread % kSide;
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) {
    INGOT_UNROLL
    for (int c = 0; c < kEach; ++c) tile.x[thread_row][thread_column + c * kSide] = sum[r][c];
    sync_threads();
    for (int e = thread; e < kSide * kTile; e += kProductThreads) {
      const int64_t i = first_row + r * kSide + e % kSide, j = first_column + e / kSide;
      if (i < p.m && j < i) static_cast<float*>(p.c)[j * p.c_row + i] = tile.x[e % kSide][e / kSide];
    }
    sync_threads();
  }
}

/// Blocks count the tiles on and below the diagonal, row by row.
INGOT_KERNEL(kProductThreads)
symmetric_product_kernel(const GpuSymmetricProduct s) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  const auto blocks = static_cast<unsigned>(tiles_of_triangle(tiles_of<kTile>(s.of.first.n)));
  const unsigned e = block_index() / blocks;
  unsigned row, column = block_index() % blocks;
  find_in_triangle(row, column);
  const GpuProduct p = product_of(s.of, e);
  const int64_t first_row = int64_t{row} * kTile, first_column = int64_t{column} * kTile;
  const int thread_row = static_cast<int>(thread_index()) / kSide,
            thread_column = static_cast<int>(thread_index()) % kSide;
  float sum[kEach][kEach];
  product_sums(p, first_row, first_column, a, b, sum);
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) INGOT_UNROLL
  for (int c = 0; c < kEach; ++c) {
    const int64_t i = first_row + thread_row + r * kSide, j = first_column + thread_column + c * kSide;
    if (i >= p.m || j > i) continue;
    const int64_t at = i * p.c_row + j;
    if (s.plus != nullptr) {
      const float plus = s.plus[e * s.of.c_stride + at];
      sum[r][c] = add_rn(mul_rn(s.plus_factor, plus), mul_rn(s.factor, sum[r][c]));
      if (i == j) sum[r][c] = add_rn(sum[r][c], s.diagonal);
    }
    static_cast<float*>(p.c)[at] = sum[r][c];
  }
  store_mirrored(p, first_row, first_column, sum, a);
}

}  // namespace

void launch_batched_product(GpuStream stream, const GpuBatchedProduct& b) {
  launch("batched_product", batched_product_kernel, {b.batch * blocks_of<kTile>(b.first), kProductThreads},
         stream, b);
}

void launch_symmetric_product(GpuStream stream, const GpuSymmetricProduct& s) {
  launch("symmetric_product", symmetric_product_kernel,
         {s.of.batch * tiles_of_triangle(tiles_of<kTile>(s.of.first.m)), kProductThreads}, stream, s);
}

}  // namespace ingot::INGOT_ISA
