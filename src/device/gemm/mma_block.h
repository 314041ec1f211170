// One block's work on a product of bf16 on tensor cores: 128 x 128 outputs, 32 of k at a time through shared
// memory while the next 32 are on their way to registers. Each output has one accumulator, which takes every
// k: no split of k, whatever the shape. Beyond the ends of rows, columns and k operands are zeros. For *.cu.
#pragma once
#include "device/gemm/product_tiles.h"
#include "device/gpu/mma.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kMmaTile = 128, kMmaStep = 32, kMmaBlockThreads = 256;
constexpr int kStepPairs = kMmaStep / 2;
/// Eight rows that are read together begin in other banks, at multiples of 16 bytes.
constexpr int kPairStride = kStepPairs + 4;
constexpr int kPairsOfThread = kMmaTile * kStepPairs / kMmaBlockThreads;

/// Warps stand in two rows, each has 64 rows of outputs.
constexpr int kWarpColumns = kMmaBlockThreads / kMmaThreads / 2;
constexpr int kRowsOfWarp = kMmaTile / 2, kColumnsOfWarp = kMmaTile / kWarpColumns;
constexpr int kRowParts = kRowsOfWarp / kMmaRows, kColumnParts = kColumnsOfWarp / kMmaColumns;

INGOT_INLINE int first_row_of_warp() {
  return static_cast<int>(thread_index()) / kMmaThreads / kWarpColumns * kRowsOfWarp;
}
INGOT_INLINE int first_column_of_warp() {
  return static_cast<int>(thread_index()) / kMmaThreads % kWarpColumns * kColumnsOfWarp;
}

/// In how many bf16 an element in memory is multiplied: f32 in two, others in one.
template <class T>
constexpr int kPartsOf = 1;
template <>
inline constexpr int kPartsOf<float> = 2;

INGOT_INLINE void take_parts(bf16 x, uint16_t (&part)[1]) {
  part[0] = x.bits;
}
INGOT_INLINE void take_parts(RoundedFloat x, uint16_t (&part)[1]) {
  part[0] = bf16_bits(x.value);
}
INGOT_INLINE void take_parts(float x, uint16_t (&part)[2]) {
  part[0] = bf16_bits(x);
  const bool is_finite = (part[0] & 0x7F80u) != 0x7F80u;  // of what is not, nothing is left
  part[1] = bf16_bits(is_finite ? sub_rn(x, widened(bf16{part[0]})) : 0.0f);
}

/// 128 rows of A, or columns of B, with 32 of k each.
template <class T>
struct OperandTile {
  alignas(16) uint32_t pair[kPartsOf<T>][kMmaTile * kPairStride];
};
/// A thread's part of it.
template <class T>
struct OperandPart {
  uint32_t pair[kPartsOf<T>][kPairsOfThread];

  INGOT_INLINE void set(int i, T even, T odd) {
    uint16_t lower[kPartsOf<T>], upper[kPartsOf<T>];
    take_parts(even, lower);
    take_parts(odd, upper);
    INGOT_UNROLL
    for (int part = 0; part < kPartsOf<T>; ++part)
      pair[part][i] = lower[part] | static_cast<uint32_t>(upper[part]) << 16;
  }
};

INGOT_INLINE void load_whole(const float* from, float (&to)[4]) {
  load4(from, to);
}
INGOT_INLINE void load_whole(const RoundedFloat* from, RoundedFloat (&to)[4]) {
  float x[4];
  load4(&from->value, x);
  INGOT_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = {x[i]};
}
INGOT_INLINE void load_whole(const bf16* from, bf16 (&to)[4]) {
  uint16_t x[4];
  load4(&from->bits, x);
  INGOT_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = {x[i]};
}
/// Four elements beside each other, of which the first `count` exist; the others are 0.
template <class T>
INGOT_INLINE void load_four(const T* from, int64_t count, T (&to)[4]) {
  if (count >= 4 && is_aligned(from)) return load_whole(from, to);
  INGOT_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = i < count ? from[i] : T{};
}

/// Where a thread's four elements of k of a row, or two elements of k of four rows, begin in a tile.
struct TilePlace {
  int row, k;
};
/// Neighbours have what lies beside each other: rows in memory are along k.
INGOT_INLINE TilePlace place_along_k(int i) {
  const int e = static_cast<int>(thread_index()) + i * kMmaBlockThreads;
  return {e / (kMmaStep / 4), e % (kMmaStep / 4) * 4};
}
/// Rows in memory are along rows: 16 of them for each of 8 pairs of k, so that a warp stores to most banks.
INGOT_INLINE TilePlace place_along_rows(int i) {
  const int e = static_cast<int>(thread_index()) + i * kMmaBlockThreads;
  return {(e % 4 + e / 32 % 8 * 4) * 4, (e / 4 % 8 + e / 256 * 8) * 2};
}

/// One operand in memory: element (i, k) is from[i * row + k * along].
template <class T>
struct Operand {
  const T* from;
  int64_t row, along, rows, depth;

  /// The thread's part of the tile from row `first` and `k` on.
  INGOT_INLINE void fetch(int64_t first, int64_t k, OperandPart<T>& to) const {
    if (along == 1) {
      INGOT_UNROLL
      for (int i = 0; i < kPairsOfThread / 2; ++i) {
        const TilePlace at = place_along_k(i);
        const int64_t r = first + at.row, c = k + at.k;
        T x[4];
        load_four(from + r * row + c, r < rows ? depth - c : 0, x);
        to.set(2 * i, x[0], x[1]);
        to.set(2 * i + 1, x[2], x[3]);
      }
      return;
    }
    INGOT_UNROLL
    for (int i = 0; i < kPairsOfThread / 4; ++i) {
      const TilePlace at = place_along_rows(i);
      const int64_t r = first + at.row, c = k + at.k;
      T even[4], odd[4];
      load_four(from + c * along + r, c < depth ? rows - r : 0, even);
      load_four(from + (c + 1) * along + r, c + 1 < depth ? rows - r : 0, odd);
      INGOT_UNROLL
      for (int j = 0; j < 4; ++j) to.set(4 * i + j, even[j], odd[j]);
    }
  }

  INGOT_INLINE void put(const OperandPart<T>& x, OperandTile<T>& to) const {
    INGOT_UNROLL
    for (int part = 0; part < kPartsOf<T>; ++part) {
      if (along == 1) {
        INGOT_UNROLL
        for (int i = 0; i < kPairsOfThread; ++i) {
          const TilePlace at = place_along_k(i / 2);
          to.pair[part][at.row * kPairStride + at.k / 2 + i % 2] = x.pair[part][i];
        }
        continue;
      }
      INGOT_UNROLL
      for (int i = 0; i < kPairsOfThread; ++i) {
        const TilePlace at = place_along_rows(i / 4);
        to.pair[part][(at.row + i % 4) * kPairStride + at.k / 2] = x.pair[part][i];
      }
    }
  }
};

/// Adds the products of two tiles, 16 of k after 16.
template <class A, class B>
INGOT_INLINE void add_tiles(MmaSums (&sum)[kRowParts][kColumnParts], const OperandTile<A>& a,
                            const OperandTile<B>& b) {
  INGOT_UNROLL
  for (int k = 0; k < kStepPairs; k += kMmaPairs) {
    MmaColumns columns[kColumnParts];
    INGOT_UNROLL
    for (int c = 0; c < kColumnParts; ++c)
      columns[c] =
          mma_columns(b.pair[0] + (first_column_of_warp() + c * kMmaColumns) * kPairStride + k, kPairStride);
    INGOT_UNROLL
    for (int r = 0; r < kRowParts; ++r) INGOT_UNROLL
    for (int part = 0; part < kPartsOf<A>; ++part) {
      const MmaRows rows =
          mma_rows(a.pair[part] + (first_row_of_warp() + r * kMmaRows) * kPairStride + k, kPairStride);
      INGOT_UNROLL
      for (int c = 0; c < kColumnParts; ++c) add_product(sum[r][c], rows, columns[c]);
    }
  }
}

/// Where a block's outputs begin.
struct MmaOutputs {
  int64_t row, column;
};
/// Output block number `block` of those that lie row by row.
INGOT_INLINE MmaOutputs outputs_of_block(const GpuMmaProduct& p, int64_t block) {
  const int64_t columns = tiles_of<kMmaTile>(p.n);
  return {block / columns * kMmaTile, block % columns * kMmaTile};
}

/// f(sums, place) for all of the thread's sums of a block's outputs, a few of them at a time; number i of
/// these is of the output place(i).
template <class F>
INGOT_INLINE void for_parts(const GpuMmaProduct& p, MmaOutputs first, MmaSums (&sum)[kRowParts][kColumnParts],
                            F&& f) {
  const int64_t first_row = first.row + first_row_of_warp(),
                first_column = first.column + first_column_of_warp();
  INGOT_UNROLL
  for (int row = 0; row < kRowParts; ++row) INGOT_UNROLL
  for (int column = 0; column < kColumnParts; ++column)
    f(sum[row][column].x, [&](int s) -> Output {
      const int64_t i = first_row + row * kMmaRows + row_of_sum(s),
                    j = first_column + column * kMmaColumns + column_of_sum(s);
      return {i, j, i < p.m && j < p.n};
    });
}
/// put(row, column, sum) for each; those that do not exist are nobody's.
template <class F>
INGOT_INLINE void for_sums(const GpuMmaProduct& p, MmaOutputs first, MmaSums (&sum)[kRowParts][kColumnParts],
                           F&& put) {
  for_parts(p, first, sum, [&](auto& sums, auto&& place) {
    INGOT_UNROLL
    for (int s = 0; s < kMmaSums; ++s)
      if (const Output o = place(s); o.exists) put(o.row, o.column, sums[s]);
  });
}

/// The thread's sums of a block's outputs; every thread of the block comes here.
template <class A, class B>
INGOT_INLINE void mma_sums(const GpuMmaProduct& p, MmaOutputs first, OperandTile<A>& a, OperandTile<B>& b,
                           MmaSums (&sum)[kRowParts][kColumnParts]) {
  const bool has_outputs =
      first.row + first_row_of_warp() < p.m && first.column + first_column_of_warp() < p.n;
  const Operand<A> of_a{static_cast<const A*>(p.a), p.a_row, p.a_k, p.m, p.k};
  const Operand<B> of_b{static_cast<const B*>(p.b), p.b_column, p.b_k, p.n, p.k};
  OperandPart<A> next_a;
  OperandPart<B> next_b;
  of_a.fetch(first.row, 0, next_a);
  of_b.fetch(first.column, 0, next_b);
  for (int64_t k = 0; k < p.k; k += kMmaStep) {
    of_a.put(next_a, a);
    of_b.put(next_b, b);
    sync_threads();
    if (k + kMmaStep < p.k) {
      of_a.fetch(first.row, k + kMmaStep, next_a);
      of_b.fetch(first.column, k + kMmaStep, next_b);
    }
    if (has_outputs) add_tiles(sum, a, b);
    sync_threads();
  }
}

/// All of a block's work.
template <class A, class B, Epilogue kEpilogue = Epilogue::none>
INGOT_INLINE void mma_block(const GpuMmaProduct& p, int64_t block, OperandTile<A>& a, OperandTile<B>& b) {
  const MmaOutputs first = outputs_of_block(p, block);
  MmaSums sum[kRowParts][kColumnParts] = {};
  mma_sums(p, first, a, b, sum);
  if constexpr (kEpilogue == Epilogue::activation)
    return for_parts(p, first, sum, [&](auto& sums, auto&& place) { put_activated(p, sums, place); });
  if constexpr (kEpilogue == Epilogue::cap)
    for_parts(p, first, sum, [&](auto& sums, auto&&) { cap_sums(p, sums); });
  with_result(p, [&](auto* c) {
    for_sums(p, first, sum, [&](int64_t i, int64_t j, float x) { put_result(p, c, i, j, x); });
  });
}

}  // namespace ingot::INGOT_ISA
