// The exact products on a GPU, by blocks of product_block.h, and sums of columns.
#include "device/gemm/product_block.h"
#include "device/simd/loops.h"

namespace ingot::INGOT_ISA {
namespace {

template <class A, class B, class C>
INGOT_KERNEL(kProductThreads)
product_kernel(const GpuProduct p) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  product_block<A, B, C>(p, block_index(), a, b);
}

INGOT_KERNEL(kProductThreads)
grouped_rows_kernel(const GpuGroupedProduct g) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  block_of_rows<kTile>(g, [&](const GpuProduct& p, int64_t block) { product_block(p, block, a, b); });
}

INGOT_KERNEL(kProductThreads)
grouped_depth_kernel(const GpuGroupedProduct g) {
  INGOT_SHARED(ProductTile, a);
  INGOT_SHARED(ProductTile, b);
  block_of_depth<kTile>(g, [&](const GpuProduct& p, int64_t block) { product_block(p, block, a, b); });
}

constexpr int kSumColumns = 16, kSumChunks = 16;

struct ChunkSums {
  float x[kSumChunks][kSumColumns];
};

/// Blocks of 16 columns: 16 chunks at a time, then one thread a column adds their sums.
template <class T>
INGOT_KERNEL(kSumColumns* kSumChunks)
column_sums_kernel(const GpuColumnSums s) {
  INGOT_SHARED(ChunkSums, part);
  const int own_chunk = static_cast<int>(thread_index()) / kSumColumns,
            thread_column = static_cast<int>(thread_index()) % kSumColumns;
  const int64_t j = int64_t{block_index()} * kSumColumns + thread_column;
  const int64_t chunks = (s.rows + s.chunk - 1) / s.chunk;
  const T* const x = static_cast<const T*>(s.x);
  float total = 0;
  for (int64_t first = 0; first < chunks; first += kSumChunks) {
    const int64_t begin = (first + own_chunk) * s.chunk,
                  end = begin + s.chunk < s.rows ? begin + s.chunk : s.rows;
    float sum = 0;
    if (j < s.columns)
      for (int64_t r = begin; r < end; ++r) sum = add_rn(sum, widened(x[r * s.stride + j]));
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
  const auto of_types = [&]<class A, class B, class C>() {
    launch("product", product_kernel<A, B, C>, {blocks_of<kTile>(p), kProductThreads}, stream, p);
  };
  const auto of_result = [&]<class A, class B>() {
    if (p.c_type == DType::bf16)
      of_types.template operator()<A, B, bf16>();
    else
      of_types.template operator()<A, B, float>();
  };
  if (p.a_type == DType::bf16)
    of_result.template operator()<bf16, float>();
  else if (p.b_type == DType::bf16)
    of_result.template operator()<float, bf16>();
  else
    of_result.template operator()<float, float>();
}

void launch_grouped_rows(GpuStream stream, const GpuGroupedProduct& g) {
  launch("grouped_rows", grouped_rows_kernel, {blocks_of_rows<kTile>(g), kProductThreads}, stream, g);
}

void launch_grouped_depth(GpuStream stream, const GpuGroupedProduct& g) {
  launch("grouped_depth", grouped_depth_kernel, {blocks_of_depth<kTile>(g), kProductThreads}, stream, g);
}

void launch_column_sums(GpuStream stream, const GpuColumnSums& sums) {
  const GpuGrid grid{(sums.columns + kSumColumns - 1) / kSumColumns, kSumColumns * kSumChunks};
  typed(sums.x, sums.x_type,
        [&]<class T>(const T*) { launch("column_sums", column_sums_kernel<T>, grid, stream, sums); });
}

}  // namespace ingot::INGOT_ISA
