// The micro-kernel of matrix products: MR x NV vectors of C in registers over kc k-steps; and the choice
// among its instantiations. Included only by isa_gemm.cpp.
#pragma once
#include <cstring>
#include <type_traits>

#include "device/gemm/gemm_k_step.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_shape.h"
#include "device/gemm/micro_kernel_operands.h"

namespace ingot::INGOT_ISA {

template <int MR, int NV>
INGOT_INLINE void pin(Vec (&acc)[MR][NV]) {
#if !defined(INGOT_ISA_generic)
  // Arithmetic on acc stays on its side of a change of the floating-point mode.
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) asm volatile("" : "+v"(acc[i][v].v));
#endif
}

template <int MR, int NV, class KStep, class A, class B>
INGOT_INLINE void k_step(A& a, B& b, Vec (&acc)[MR][NV]) {
  a.begin();
  Vec bv[NV];
#pragma GCC unroll 3
  for (int v = 0; v < NV; ++v) bv[v] = b.vector(v);
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    float word;
    std::memcpy(&word, a.word(i), sizeof(word));
    const Vec x = set1(word);
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) acc[i][v] = KStep::step(x, bv[v], acc[i][v]);
  }
  a.next();
  b.next();
}

template <int MR, int NV, class KStep, class A, class B, class Side>
INGOT_INLINE void accumulate_k(int64_t kc, A a, B b, Side side, Vec (&acc)[MR][NV]) {
  int64_t k = 0;
  if constexpr (std::is_same_v<A, RowsOfA> && MR == kMr) {
    // Prefetches the next rows of A: 16 k-steps use one cache line of each.
    constexpr int kPerRow = 16 / kMr;
    for (; k + 16 <= kc; k += 16) {
      const float* next = a.at + kMr * a.lda;
      for (int i = 0; i < kMr; ++i, next += a.lda) {
        __builtin_prefetch(next);
#pragma GCC unroll 4
        for (int j = 0; j < kPerRow; ++j) {
          side.next();
          k_step<MR, NV, KStep>(a, b, acc);
        }
      }
    }
  }
  for (; k < kc; ++k) {
    side.next();
    k_step<MR, NV, KStep>(a, b, acc);
  }
}

/// C tile = its sums + A B (+ bias), for NV vectors of a micro-panel.
template <int MR, int NV, class KStep, class A, class B = PackedB<NV>, class Side = Prefetching>
void micro_kernel(int64_t kc, const float* a, const float* b, const MicroTile& io) {
  Vec acc[MR][NV];
  if (io.next != nullptr)
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) __builtin_prefetch(io.next + i * io.next_stride + v * kLanes, 1);
  if (io.in == nullptr) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) acc[i][v] = zero();
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) acc[i][v] = load_cols<NV>(io.in + i * io.in_stride, v, io.cols);
  }
  if constexpr (std::is_same_v<KStep, TwoFmaStep>) {
    const unsigned mode = flush_subnormals();
    pin(acc);
    accumulate_k<MR, NV, KStep>(kc, A(a, io), B(b, io), Side(io), acc);
    pin(acc);
    restore_mode(mode);
  } else {
    accumulate_k<MR, NV, KStep>(kc, A(a, io), B(b, io), Side(io), acc);
  }
  if (io.bias != nullptr) {
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) {
      const Vec add = io.bias_bf16 ? load_cols<NV>(static_cast<const bf16*>(io.bias), v, io.cols)
                                   : load_cols<NV>(static_cast<const float*>(io.bias), v, io.cols);
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) acc[i][v] = acc[i][v] + add;
    }
  }
  if (io.out_bf16) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v)
        store_cols<NV>(static_cast<bf16*>(io.out) + i * io.out_stride, v, io.cols, acc[i][v]);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v)
        store_cols<NV>(static_cast<float*>(io.out) + i * io.out_stride, v, io.cols, acc[i][v]);
  }
}

using MicroKernel = void (*)(int64_t, const float*, const float*, const MicroTile&);

/// vecs < panel: only where a panel of the symmetric product touches the diagonal.
template <class KStep, class A, int MR>
MicroKernel micro_kernel_of_width(int64_t vecs, int64_t panel) {
  if constexpr (MR == kMr && kVecs > 1)
    if (vecs < panel)
      return with_constant<kVecs - 1>(
          vecs, []<int NV>() -> MicroKernel { return &micro_kernel<MR, NV, KStep, A, PackedB<kVecs>>; });
  return with_constant<kVecs>(vecs, []<int NV>() -> MicroKernel { return &micro_kernel<MR, NV, KStep, A>; });
}

template <class KStep, class A>
MicroKernel micro_kernel_of_rows(int64_t rows, int64_t vecs, int64_t panel) {
  return with_constant<kMr>(rows, [=]<int MR>() { return micro_kernel_of_width<KStep, A, MR>(vecs, panel); });
}

template <class KStep>
MicroKernel micro_kernel_of_step(APath a, int64_t rows, int64_t vecs, int64_t panel) {
  if constexpr (std::is_same_v<KStep, F32Step>)  // pairs of columns are not words
    if (a == APath::columns) return micro_kernel_of_rows<KStep, ColumnsOfA>(rows, vecs, panel);
  return a == APath::rows ? micro_kernel_of_rows<KStep, RowsOfA>(rows, vecs, panel)
                          : micro_kernel_of_rows<KStep, PackedA>(rows, vecs, panel);
}

inline MicroKernel micro_kernel_of(bool pairs, APath a, int64_t rows, int64_t vecs, int64_t panel) {
  if (!pairs) return micro_kernel_of_step<F32Step>(a, rows, vecs, panel);
#if defined(INGOT_ISA_avx512)
  if (active_isa() == Isa::avx512bf16) return micro_kernel_of_step<DotProductStep>(a, rows, vecs, panel);
#endif
  return micro_kernel_of_step<TwoFmaStep>(a, rows, vecs, panel);
}

/// For the first rows of a task: packs B, f32 stored [k, n].
template <class A>
MicroKernel micro_kernel_packing_b(int64_t vecs) {
  return with_constant<kVecs>(
      vecs, []<int NV>() -> MicroKernel { return &micro_kernel<kMr, NV, F32Step, A, PackingRowsOfB<NV>>; });
}

inline MicroKernel micro_kernel_packing_b(APath a, int64_t vecs) {
  return a == APath::columns ? micro_kernel_packing_b<ColumnsOfA>(vecs)
         : a == APath::rows  ? micro_kernel_packing_b<RowsOfA>(vecs)
                             : micro_kernel_packing_b<PackedA>(vecs);
}

/// For a task that packs A, stored [k, m].
template <class KStep, class A>
MicroKernel micro_kernel_packing_a(int64_t vecs) {
  return with_constant<kVecs>(vecs, []<int NV>() -> MicroKernel { return &micro_kernel<kMr, NV, KStep, A>; });
}

inline MicroKernel micro_kernel_packing_a([[maybe_unused]] DType type, [[maybe_unused]] bool pairs,
                                          [[maybe_unused]] int64_t vecs) {
#if defined(INGOT_ISA_avx512)
  if (pairs && active_isa() == Isa::avx512bf16)
    return micro_kernel_packing_a<DotProductStep, PackingColumnPairsOfA>(vecs);
#endif
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
  if (pairs) return micro_kernel_packing_a<TwoFmaStep, PackingColumnPairsOfA>(vecs);
  return type == DType::bf16 ? micro_kernel_packing_a<F32Step, PackingColumnsOfA<bf16>>(vecs)
                             : micro_kernel_packing_a<F32Step, PackingColumnsOfA<float>>(vecs);
#else
  return nullptr;
#endif
}

/// Whole tiles that pack a part of the next packed panel of B.
template <class KStep, class A, class T, int kRowsOfStep>
MicroKernel micro_kernel_packing_next_b(int64_t vecs) {
  return with_constant<kVecs>(vecs, []<int NV>() -> MicroKernel {
    return &micro_kernel<kMr, NV, KStep, A, PackedB<NV>, PackingNextB<T, kRowsOfStep>>;
  });
}

template <class KStep, class T>
MicroKernel pairs_packing_next_b(APath a, int64_t vecs) {
  return a == APath::rows ? micro_kernel_packing_next_b<KStep, RowsOfA, T, 2>(vecs)
                          : micro_kernel_packing_next_b<KStep, PackedA, T, 2>(vecs);
}

template <class KStep>
MicroKernel pairs_packing_next_b(DType b, APath a, int64_t vecs) {
  return b == DType::bf16 ? pairs_packing_next_b<KStep, bf16>(a, vecs)
                          : pairs_packing_next_b<KStep, RoundedFloat>(a, vecs);
}

inline MicroKernel micro_kernel_packing_next_b(bool pairs, DType b, APath a, int64_t vecs) {
#if defined(INGOT_ISA_avx512)
  if (pairs && active_isa() == Isa::avx512bf16) return pairs_packing_next_b<DotProductStep>(b, a, vecs);
#endif
  if (pairs) return pairs_packing_next_b<TwoFmaStep>(b, a, vecs);
  return micro_kernel_packing_next_b<F32Step, PackedA, float, 1>(vecs);
}

}  // namespace ingot::INGOT_ISA
