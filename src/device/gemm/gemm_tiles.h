// The register tile of matrix products, and which of its forms a piece asks for. Included only by isa_gemm.cpp.
#pragma once
#include <cstring>
#include <type_traits>

#include "device/gemm/gemm_chain.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_operands.h"
#include "device/gemm/gemm_tile.h"

namespace ingot::INGOT_ISA {

template <int MR, int NV>
INGOT_INLINE void pin(Vec (&acc)[MR][NV]) {
#if !defined(INGOT_ISA_generic)
  // Arithmetic on acc stays on its side of a change of the rounding mode.
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) asm volatile("" : "+v"(acc[i][v].v));
#endif
}

template <int MR, int NV, class Chain, class A, class B>
INGOT_INLINE void run_step(A& a, B& b, Vec (&acc)[MR][NV]) {
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
    for (int v = 0; v < NV; ++v) acc[i][v] = Chain::step(x, bv[v], acc[i][v]);
  }
  a.next();
  b.next();
}

template <int MR, int NV, class Chain, class A, class B, class Side>
INGOT_INLINE void run_chains(int64_t kc, A a, B b, Side side, Vec (&acc)[MR][NV]) {
  int64_t k = 0;
  if constexpr (std::is_same_v<A, RowsOfA> && MR == kRows) {
    // The next rows' lines: 16 steps use one line of each.
    constexpr int kPerRow = 16 / kRows;
    for (; k + 16 <= kc; k += 16) {
      const float* next = a.at + kRows * a.lda;
      for (int i = 0; i < kRows; ++i, next += a.lda) {
        __builtin_prefetch(next);
#pragma GCC unroll 4
        for (int j = 0; j < kPerRow; ++j) {
          side.next();
          run_step<MR, NV, Chain>(a, b, acc);
        }
      }
    }
  }
  for (; k < kc; ++k) {
    side.next();
    run_step<MR, NV, Chain>(a, b, acc);
  }
}

/// NV vectors of a panel.
template <int MR, int NV, class Chain, class A, class B = StripOfB<NV>, class Side = Fetching>
void tile(int64_t kc, const float* a, const float* b, const TileIo& io) {
  Vec acc[MR][NV];
  if (io.next != nullptr)  // it travels while the chains run
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
  if constexpr (std::is_same_v<Chain, TwoFmas>) {
    const unsigned mode = flush_subnormals();
    pin(acc);
    run_chains<MR, NV, Chain>(kc, A(a, io), B(b, io), Side(io), acc);
    pin(acc);
    restore_mode(mode);
  } else {
    run_chains<MR, NV, Chain>(kc, A(a, io), B(b, io), Side(io), acc);
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

using TileFn = void (*)(int64_t, const float*, const float*, const TileIo&);

/// vecs < panel: only where a panel of the symmetric product touches the diagonal.
template <class Chain, class A, int MR>
TileFn tile_of_width(int64_t vecs, int64_t panel) {
  if constexpr (MR == kRows && kVecs > 1)
    if (vecs < panel)
      return with_constant<kVecs - 1>(
          vecs, []<int NV>() -> TileFn { return &tile<MR, NV, Chain, A, StripOfB<kVecs>>; });
  return with_constant<kVecs>(vecs, []<int NV>() -> TileFn { return &tile<MR, NV, Chain, A>; });
}

template <class Chain, class A>
TileFn tile_of_rows(int64_t rows, int64_t vecs, int64_t panel) {
  return with_constant<kRows>(rows, [=]<int MR>() { return tile_of_width<Chain, A, MR>(vecs, panel); });
}

template <class Chain>
TileFn tile_of_chain(ALayout a, int64_t rows, int64_t vecs, int64_t panel) {
  if constexpr (std::is_same_v<Chain, Plain>)  // pairs of columns are not words
    if (a == ALayout::columns) return tile_of_rows<Chain, ColumnsOfA>(rows, vecs, panel);
  return a == ALayout::rows ? tile_of_rows<Chain, RowsOfA>(rows, vecs, panel)
                            : tile_of_rows<Chain, PackedA>(rows, vecs, panel);
}

inline TileFn tile_of(bool pairs, ALayout a, int64_t rows, int64_t vecs, int64_t panel) {
  if (!pairs) return tile_of_chain<Plain>(a, rows, vecs, panel);
#if defined(INGOT_ISA_avx512)
  if (active_isa() == Isa::avx512bf16) return tile_of_chain<Dot>(a, rows, vecs, panel);
#endif
  return tile_of_chain<TwoFmas>(a, rows, vecs, panel);
}

/// That of the first rows, which packs B.
template <class A>
TileFn b_packing_tile(int64_t vecs) {
  return with_constant<kVecs>(vecs,
                              []<int NV>() -> TileFn { return &tile<kRows, NV, Plain, A, RowsOfB<NV>>; });
}

inline TileFn b_packing_tile(ALayout a, int64_t vecs) {
  return a == ALayout::columns ? b_packing_tile<ColumnsOfA>(vecs)
         : a == ALayout::rows  ? b_packing_tile<RowsOfA>(vecs)
                               : b_packing_tile<PackedA>(vecs);
}

/// Those that pack columns of A.
inline TileFn a_packing_tile([[maybe_unused]] DType type, [[maybe_unused]] bool pairs,
                             [[maybe_unused]] int64_t vecs) {
#if defined(INGOT_ISA_avx512)
  if (pairs && active_isa() == Isa::avx512bf16) return tile_of_width<Dot, PackedPairs, kRows>(vecs, vecs);
#endif
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
  if (pairs) return tile_of_width<TwoFmas, PackedPairs, kRows>(vecs, vecs);
  return type == DType::bf16 ? tile_of_width<Plain, PackedColumns<bf16>, kRows>(vecs, vecs)
                             : tile_of_width<Plain, PackedColumns<float>, kRows>(vecs, vecs);
#else
  return nullptr;
#endif
}

/// Whole ones that pack a part of the next strip.
template <class Chain, class A, class T, int kRowsOfStep>
TileFn b_ahead_tile(int64_t vecs) {
  return with_constant<kVecs>(vecs, []<int NV>() -> TileFn {
    return &tile<kRows, NV, Chain, A, StripOfB<NV>, PackingB<T, kRowsOfStep>>;
  });
}

template <class Chain, class T>
TileFn pairs_ahead_tile(ALayout a, int64_t vecs) {
  return a == ALayout::rows ? b_ahead_tile<Chain, RowsOfA, T, 2>(vecs)
                            : b_ahead_tile<Chain, PackedA, T, 2>(vecs);
}

template <class Chain>
TileFn pairs_ahead_tile(DType b, ALayout a, int64_t vecs) {
  return b == DType::bf16 ? pairs_ahead_tile<Chain, bf16>(a, vecs)
                          : pairs_ahead_tile<Chain, RoundedFloat>(a, vecs);
}

inline TileFn b_ahead_tile(bool pairs, DType b, ALayout a, int64_t vecs) {
#if defined(INGOT_ISA_avx512)
  if (pairs && active_isa() == Isa::avx512bf16) return pairs_ahead_tile<Dot>(b, a, vecs);
#endif
  if (pairs) return pairs_ahead_tile<TwoFmas>(b, a, vecs);
  return b_ahead_tile<Plain, PackedA, float, 1>(vecs);
}

}  // namespace ingot::INGOT_ISA
