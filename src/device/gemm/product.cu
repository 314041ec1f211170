// The exact products on a GPU, by blocks of product_block.h, and sums of columns.
#include "device/gemm/product_block.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_KERNEL(kProductThreads)
product_kernel(const GpuProduct p) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  product_block(p, block_index(), a, b);
}

/// The group that tile number `tile` of all groups' rows belongs to, -1 for none; `tile` becomes its number
/// there.
INGOT_INLINE int64_t group_of_tile(const GpuGroupedProduct& g, int64_t& tile) {
  for (int64_t e = 0; e < g.groups; ++e) {
    const int64_t tiles = (int64_t{g.offsets[e + 1]} - g.offsets[e] + kTile - 1) / kTile;
    if (tile < tiles) return e;
    tile -= tiles;
  }
  return -1;
}

/// Blocks count the tiles of the first group's rows, of the second's, ...; those beyond the last do nothing.
INGOT_KERNEL(kProductThreads)
grouped_rows_kernel(const GpuGroupedProduct g) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  GpuProduct p = g.product;
  const int64_t columns = column_blocks(p);
  int64_t tile = block_index() / columns;
  const int64_t e = group_of_tile(g, tile);
  if (e < 0) return;
  const int64_t first = g.offsets[e];
  p.m = g.offsets[e + 1] - first;
  p.a += first * p.a_row, p.b += e * g.stride, p.c += first * p.c_row;
  product_block(p, tile * columns + block_index() % columns, a, b);
}

INGOT_KERNEL(kProductThreads)
grouped_depth_kernel(const GpuGroupedProduct g) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  GpuProduct p = g.product;
  const int64_t blocks = (p.m + kTile - 1) / kTile * column_blocks(p), e = block_index() / blocks,
                first = g.offsets[e];
  p.k = g.offsets[e + 1] - first;
  p.a += first * p.a_k, p.b += first * p.b_k, p.c += e * g.stride;
  product_block(p, block_index() % blocks, a, b);
}

constexpr int kSumColumns = 16, kSumChunks = 16;

struct ChunkSums {
  float x[kSumChunks][kSumColumns];
};

/// Blocks of 16 columns: 16 chunks at a time, then one thread a column adds their sums.
INGOT_KERNEL(kSumColumns* kSumChunks)
column_sums_kernel(const GpuColumnSums s) {
  INGOT_SHARED(ChunkSums, part);
  const int own_chunk = static_cast<int>(thread_index()) / kSumColumns,
            thread_column = static_cast<int>(thread_index()) % kSumColumns;
  const int64_t j = int64_t{block_index()} * kSumColumns + thread_column;
  const int64_t chunks = (s.rows + s.chunk - 1) / s.chunk;
  float total = 0;
  for (int64_t first = 0; first < chunks; first += kSumChunks) {
    const int64_t begin = (first + own_chunk) * s.chunk,
                  end = begin + s.chunk < s.rows ? begin + s.chunk : s.rows;
    float sum = 0;
    if (j < s.columns)
      for (int64_t r = begin; r < end; ++r) sum = add_rn(sum, s.x[r * s.stride + j]);
    part.x[own_chunk][thread_column] = sum;
    sync_threads();
    if (own_chunk == 0)
      for (int64_t c = 0; c < kSumChunks && first + c < chunks; ++c)
        total = add_rn(total, part.x[c][thread_column]);
    sync_threads();
  }
  if (own_chunk == 0 && j < s.columns) s.to[j] = s.accumulate ? add_rn(s.to[j], total) : total;
}

}  // namespace

void launch_product(GpuStream stream, const GpuProduct& p) {
  const int64_t blocks = (p.m + kTile - 1) / kTile * ((p.n + kTile - 1) / kTile);
  launch("product", product_kernel, {blocks, kProductThreads}, stream, p);
}

void launch_grouped_rows(GpuStream stream, const GpuGroupedProduct& g) {
  // A group may leave one tile half empty.
  const int64_t tiles = g.product.m / kTile + g.groups, columns = (g.product.n + kTile - 1) / kTile;
  launch("grouped_rows", grouped_rows_kernel, {g.product.m > 0 ? tiles * columns : 0, kProductThreads},
         stream, g);
}

void launch_grouped_depth(GpuStream stream, const GpuGroupedProduct& g) {
  const int64_t blocks = (g.product.m + kTile - 1) / kTile * ((g.product.n + kTile - 1) / kTile);
  launch("grouped_depth", grouped_depth_kernel, {g.groups * blocks, kProductThreads}, stream, g);
}

void launch_column_sums(GpuStream stream, const GpuColumnSums& sums) {
  launch("column_sums", column_sums_kernel,
         {(sums.columns + kSumColumns - 1) / kSumColumns, kSumColumns * kSumChunks}, stream, sums);
}

}  // namespace ingot::INGOT_ISA
