// The exact product on a GPU: blocks of 64 x 64 outputs, 16 outputs a thread, 16 of k at a time through
// shared memory. No output's chain is cut.
#include "device/gemm/gpu_product.h"
#include "device/gpu/rt.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kTile = 64, kStepK = 16, kSide = 16, kEach = kTile / kSide;
constexpr int kProductThreads = kSide * kSide;

/// [k][row or column]; the padding keeps stores of neighbours in other banks.
struct ProductTile {
  float x[kStepK][kTile + 1];
};

/// Loads elements (first + i, k + kk) for i < kTile and kk < kStepK of a matrix of `count` rows; what does
/// not exist stays as it is, and no chain reads it.
INGOT_INLINE void load_tile(ProductTile& tile, const float* from, int64_t row, int64_t column, int64_t first,
                            int64_t count, int64_t k, int64_t depth) {
  for (int e = static_cast<int>(thread_index()); e < kTile * kStepK; e += kProductThreads) {
    // Neighbours read what lies beside each other.
    const int i = column == 1 ? e / kStepK : e % kTile, kk = column == 1 ? e % kStepK : e / kTile;
    if (first + i < count && k + kk < depth) tile.x[kk][i] = from[(first + i) * row + (k + kk) * column];
  }
}

INGOT_KERNEL(kProductThreads)
product_kernel(const GpuProduct p) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  const int64_t column_blocks = (p.n + kTile - 1) / kTile;
  const int64_t first_row = block_index() / column_blocks * kTile,
                first_column = block_index() % column_blocks * kTile;
  const int thread_row = static_cast<int>(thread_index()) / kSide,
            thread_column = static_cast<int>(thread_index()) % kSide;
  float sum[kEach][kEach];
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) INGOT_UNROLL
  for (int c = 0; c < kEach; ++c) {
    const int64_t i = first_row + thread_row + r * kSide, j = first_column + thread_column + c * kSide;
    sum[r][c] = p.accumulate && i < p.m && j < p.n ? p.c[i * p.c_row + j] : 0.0f;
  }
  for (int64_t k = 0; k < p.k; k += kStepK) {
    load_tile(a, p.a, p.a_row, p.a_k, first_row, p.m, k, p.k);
    load_tile(b, p.b, p.b_column, p.b_k, first_column, p.n, k, p.k);
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
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) INGOT_UNROLL
  for (int c = 0; c < kEach; ++c) {
    const int64_t i = first_row + thread_row + r * kSide, j = first_column + thread_column + c * kSide;
    if (i >= p.m || j >= p.n) continue;
    p.c[i * p.c_row + j] = p.bias != nullptr ? add_rn(sum[r][c], p.bias[j]) : sum[r][c];
  }
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

void launch_column_sums(GpuStream stream, const GpuColumnSums& sums) {
  launch("column_sums", column_sums_kernel,
         {(sums.columns + kSumColumns - 1) / kSumColumns, kSumColumns * kSumChunks}, stream, sums);
}

}  // namespace ingot::INGOT_ISA
