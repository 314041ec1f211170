// Products of bf16 on tensor cores, by blocks of mma_block.h.
#include "device/gemm/mma_block.h"

namespace ingot::INGOT_ISA {
namespace {

template <class A, class B>
INGOT_KERNEL(kMmaBlockThreads)
mma_product_kernel(const GpuMmaProduct p) {
  INGOT_SHARED(OperandTile<A>, a);
  INGOT_SHARED(OperandTile<B>, b);
  mma_block<A, B>(p, block_index(), a, b);
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
    launch("mma_product", mma_product_kernel<A, B>, {blocks_of<kMmaTile>(p), kMmaBlockThreads}, stream, p);
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

}  // namespace ingot::INGOT_ISA
