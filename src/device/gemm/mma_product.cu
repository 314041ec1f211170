// Products of bf16 on tensor cores, by blocks of mma_block.h.
#include <type_traits>

#include "device/gemm/mma_block.h"

namespace ingot::INGOT_ISA {
namespace {

template <class A, class B, Epilogue kEpilogue>
INGOT_KERNEL(kMmaBlockThreads)
mma_product_kernel(const GpuMmaProduct p) {
  INGOT_SHARED(OperandTile<A>, a);
  INGOT_SHARED(OperandTile<B>, b);
  mma_block<A, B, kEpilogue>(p, block_index(), a, b);
}

template <class A, class B>
INGOT_KERNEL(kMmaBlockThreads)
grouped_mma_rows_kernel(const GpuGroupedMmaProduct g) {
  INGOT_SHARED(OperandTile<A>, a);
  INGOT_SHARED(OperandTile<B>, b);
  block_of_rows<kMmaTile>(g, [&](const GpuMmaProduct& p, int64_t block) { mma_block<A, B>(p, block, a, b); });
}

template <class A, class B>
INGOT_KERNEL(kMmaBlockThreads)
grouped_mma_depth_kernel(const GpuGroupedMmaProduct g) {
  INGOT_SHARED(OperandTile<A>, a);
  INGOT_SHARED(OperandTile<B>, b);
  block_of_depth<kMmaTile>(g,
                           [&](const GpuMmaProduct& p, int64_t block) { mma_block<A, B>(p, block, a, b); });
}

INGOT_KERNEL(kMmaBlockThreads)
batched_mma_product_kernel(const GpuBatchedMmaProduct batch) {
  INGOT_SHARED(OperandTile<bf16>, a);
  INGOT_SHARED(OperandTile<bf16>, b);
  const int64_t blocks = blocks_of<kMmaTile>(batch.first);
  mma_block(product_of(batch, block_index() / blocks), block_index() % blocks, a, b);
}

INGOT_KERNEL(kMmaBlockThreads)
symmetric_mma_product_kernel(const GpuBatchedMmaProduct batch) {
  INGOT_SHARED(OperandTile<bf16>, a);
  INGOT_SHARED(OperandTile<bf16>, b);
  const auto blocks = static_cast<unsigned>(tiles_of_triangle(tiles_of<kMmaTile>(batch.first.m)));
  const GpuMmaProduct p = product_of(batch, block_index() / blocks);
  unsigned row, column = block_index() % blocks;
  find_in_triangle(row, column);
  const MmaOutputs first{int64_t{row} * kMmaTile, int64_t{column} * kMmaTile};
  MmaSums sum[kRowParts][kColumnParts] = {};
  mma_sums(p, first, a, b, sum);
  with_result(p, [&](auto* c) {
    for_sums(p, first, sum, [&](int64_t i, int64_t j, float x) { put_mirrored(p, c, i, j, x); });
  });
}

/// Calls f with the types in memory of A and B; kernels exist for operands that ops have.
template <bool kRoundedA, bool kRoundedB, class F>
void with_types(const GpuMmaProduct& p, F&& f) {
  const auto with_a = [&]<class A>() {
    if constexpr (kRoundedB)
      if (p.b_is == MmaOperand::rounded) return f.template operator()<A, RoundedFloat>();
    f.template operator()<A, bf16>();
  };
  if (p.a_is == MmaOperand::split) return with_a.template operator()<float>();
  if constexpr (kRoundedA)
    if (p.a_is == MmaOperand::rounded) return with_a.template operator()<RoundedFloat>();
  with_a.template operator()<bf16>();
}

}  // namespace

void launch_mma_product(GpuStream stream, const GpuMmaProduct& p) {
  with_types<true, true>(p, [&]<class A, class B>() {
    const GpuGrid grid{blocks_of<kMmaTile>(p), kMmaBlockThreads};
    const auto go = [&]<Epilogue kEpilogue>() {
      launch("mma_product", mma_product_kernel<A, B, kEpilogue>, grid, stream, p);
    };
    if constexpr (std::is_same_v<A, bf16>)
      with_epilogue(p, go);
    else
      go.template operator()<Epilogue::none>();
  });
}

void launch_grouped_mma_rows(GpuStream stream, const GpuGroupedMmaProduct& g) {
  with_types<false, true>(g.product, [&]<class A, class B>() {
    launch("grouped_mma_rows", grouped_mma_rows_kernel<A, B>, {blocks_of_rows<kMmaTile>(g), kMmaBlockThreads},
           stream, g);
  });
}

void launch_grouped_mma_depth(GpuStream stream, const GpuGroupedMmaProduct& g) {
  with_types<false, false>(g.product, [&]<class A, class B>() {
    launch("grouped_mma_depth", grouped_mma_depth_kernel<A, B>,
           {blocks_of_depth<kMmaTile>(g), kMmaBlockThreads}, stream, g);
  });
}

void launch_batched_mma_product(GpuStream stream, const GpuBatchedMmaProduct& b) {
  launch("batched_mma_product", batched_mma_product_kernel,
         {b.batch * blocks_of<kMmaTile>(b.first), kMmaBlockThreads}, stream, b);
}

void launch_symmetric_mma_product(GpuStream stream, const GpuBatchedMmaProduct& b) {
  launch("symmetric_mma_product", symmetric_mma_product_kernel,
         {b.batch * tiles_of_triangle(tiles_of<kMmaTile>(b.first.m)), kMmaBlockThreads}, stream, b);
}

}  // namespace ingot::INGOT_ISA
