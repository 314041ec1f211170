// Small matrix products and copies that the attention kernels share; see simd.h for the rules.
#pragma once
#include "device/cpu/reduce.h"
#include "device/cpu/simd.h"
#include "device/cpu/transpose.h"
#include "device/cpu/vmath.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_avx512)
constexpr int kTileVecs = 4;  // 6 x 64: 24 accumulators
#else
constexpr int kTileVecs = 2;
#endif
constexpr int kTileRows = 6;

/// C (rows x vecs vectors) = A B, or C * factor[row] + A B where from_c; chains over ascending depth.
/// A element (i, k) is a[i * a_row + k * a_depth]. All pointers are scratch: whole vectors may be read and
/// written.
struct Product {
  int64_t rows, vecs, depth;
  const float* a;
  int64_t a_row, a_depth;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool from_c;
  const float* factor;  ///< nullptr: 1
};

template <int MR, int NV, bool kAdjacentRows>
void product_tile(const Product& p, int64_t row, int64_t vec) {
  Vec acc[MR][NV];
  float* c = p.c + row * p.ldc + vec * kLanes;
  if (!p.from_c) {
#pragma GCC unroll 6
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) acc[i][v] = zero();
  } else {
#pragma GCC unroll 6
    for (int i = 0; i < MR; ++i) {
      const Vec factor = set1(p.factor != nullptr ? p.factor[row + i] : 1.0f);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) acc[i][v] = load(c + i * p.ldc + v * kLanes) * factor;
    }
  }
  const int64_t a_row = kAdjacentRows ? 1 : p.a_row;
  const int64_t a_depth = kAdjacentRows ? p.a_depth : 1;
  const float* a = p.a + row * a_row;
  const float* b = p.b + vec * kLanes;
  const int64_t ldb = p.ldb;
  for (int64_t k = 0; k < p.depth; ++k, a += a_depth, b += ldb) {
    Vec bv[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < MR; ++i) {
      const Vec x = set1(a[i * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) acc[i][v] = fma(x, bv[v], acc[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store(c + i * p.ldc + v * kLanes, acc[i][v]);
}

using ProductTile = void (*)(const Product&, int64_t row, int64_t vec);

template <int MR, bool kAdjacentRows>
INGOT_INLINE ProductTile product_tile_of_width(int64_t vecs) {
#if defined(INGOT_ISA_avx512)
  if (vecs >= 4) return &product_tile<MR, 4, kAdjacentRows>;
  if (vecs == 3) return &product_tile<MR, 3, kAdjacentRows>;
#endif
  return vecs >= 2 ? &product_tile<MR, 2, kAdjacentRows> : &product_tile<MR, 1, kAdjacentRows>;
}

template <bool kAdjacentRows>
INGOT_INLINE ProductTile product_tile_of(int64_t rows, int64_t vecs) {
  switch (rows) {
    case 1:
      return product_tile_of_width<1, kAdjacentRows>(vecs);
    case 2:
      return product_tile_of_width<2, kAdjacentRows>(vecs);
    case 3:
      return product_tile_of_width<3, kAdjacentRows>(vecs);
    case 4:
      return product_tile_of_width<4, kAdjacentRows>(vecs);
    case 5:
      return product_tile_of_width<5, kAdjacentRows>(vecs);
    default:
      return product_tile_of_width<6, kAdjacentRows>(vecs);
  }
}

/// kAdjacentRows: a_row = 1 (A is stored depth by rows); otherwise a_depth = 1.
template <bool kAdjacentRows>
INGOT_INLINE void product(const Product& p) {
  for (int64_t row = 0; row < p.rows; row += kTileRows)
    for (int64_t vec = 0; vec < p.vecs; vec += kTileVecs)
      product_tile_of<kAdjacentRows>(p.rows - row, p.vecs - vec)(p, row, vec);
}

/// out[i][0 .. padded) = x[i][0 .. width) and zeros, f32.
template <class T>
INGOT_INLINE void copy_rows(const T* x, int64_t stride, int64_t rows, int64_t width, float* out,
                            int64_t padded) {
  for (int64_t i = 0; i < rows; ++i, x += stride, out += padded) {
    int64_t j = 0;
    for (; j + kLanes <= width; j += kLanes) store(out + j, load(x + j));
    if (j < width) {
      store(out + j, load_tail(x + j, static_cast<int>(width - j)));
      j += kLanes;
    }
    for (; j < padded; j += kLanes) store(out + j, zero());
  }
}

/// out[j][i] = x[i][j], rows of out kAttentionBlock long; missing rows become zeros up to a whole vector.
template <class T>
INGOT_INLINE void transpose_rows(const T* x, int64_t stride, int64_t rows, int64_t width, float* out) {
  for (int64_t i = 0; i < rows; i += kLanes)
    for (int64_t j = 0; j < width; j += kLanes) {
      const int depth = static_cast<int>(width - j < kLanes ? width - j : kLanes);
      Vec r[kLanes];
#pragma GCC unroll 16
      for (int q = 0; q < kLanes; ++q) {
        if (i + q >= rows)
          r[q] = zero();
        else
          r[q] =
              depth == kLanes ? load(x + (i + q) * stride + j) : load_tail(x + (i + q) * stride + j, depth);
      }
      transpose(r);
      for (int q = 0; q < depth; ++q) store(out + (j + q) * 64 + i, r[q]);
    }
}

/// y[0 .. width) = x, rounded to T.
template <class T>
INGOT_INLINE void write_row(T* y, const float* x, int64_t width) {
  int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) store(y + j, load(x + j));
  if (j < width) store_tail(y + j, load(x + j), static_cast<int>(width - j));
}

INGOT_INLINE Vec lane_numbers() {
  alignas(64) static constexpr float kNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load(kNumbers);
}

/// The visible keys of a row within a block: low <= index <= high.
struct Visible {
  int64_t low, high;
};

/// x where first + lane lies in the visible range, else `hidden`.
INGOT_INLINE Vec mask_keys(Vec x, int64_t first, Visible keys, Vec hidden) {
  if (first >= keys.low && first + kLanes - 1 <= keys.high) return x;
  const Vec index = lane_numbers() + set1(static_cast<float>(first));
  const Vec below = select(index < set1(static_cast<float>(keys.low)), hidden, x);
  return select(set1(static_cast<float>(keys.high)) < index, hidden, below);
}

}  // namespace ingot::INGOT_ISA
