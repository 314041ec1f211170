// Small matrix products and copies that the attention kernels share; see simd.h for the rules.
#pragma once
#include "device/attention/attention_kernels.h"
#include "device/attention/attention_rows.h"
#include "device/simd/reduce.h"
#include "device/simd/simd.h"
#include "device/simd/transpose.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_avx512)
constexpr int kTileVecs = 4;  // 6 x 64: 24 accumulators
#else
constexpr int kTileVecs = 2;
#endif
constexpr int kTileRows = 6;

/// C (rows x vecs vectors) = A B, or C * factor[row] + A B where from_c; by fma over ascending depth.
/// A element (i, k) is a[i * a_row + k * a_depth]. Whole vectors are read and written.
template <class T>
struct ProductOf {
  int64_t rows, vecs, depth;
  const float* a;
  int64_t a_row, a_depth;
  const T* b;  ///< f32, or bf16 that is widened while it is read
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool from_c;
  const float* factor;  ///< nullptr: 1
};
using Product = ProductOf<float>;

template <int MR, int NV, bool kAdjacentRows, class T>
void product_tile(const ProductOf<T>& p, int64_t row, int64_t vec) {
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
  const T* b = p.b + vec * kLanes;
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

template <class T>
using ProductTile = void (*)(const ProductOf<T>&, int64_t row, int64_t vec);

template <int MR, bool kAdjacentRows, class T>
INGOT_INLINE ProductTile<T> product_tile_of_width(int64_t vecs) {
#if defined(INGOT_ISA_avx512)
  if (vecs >= 4) return &product_tile<MR, 4, kAdjacentRows, T>;
  if (vecs == 3) return &product_tile<MR, 3, kAdjacentRows, T>;
#endif
  return vecs >= 2 ? &product_tile<MR, 2, kAdjacentRows, T> : &product_tile<MR, 1, kAdjacentRows, T>;
}

template <bool kAdjacentRows, class T>
INGOT_INLINE ProductTile<T> product_tile_of(int64_t rows, int64_t vecs) {
  switch (rows) {
    case 1:
      return product_tile_of_width<1, kAdjacentRows, T>(vecs);
    case 2:
      return product_tile_of_width<2, kAdjacentRows, T>(vecs);
    case 3:
      return product_tile_of_width<3, kAdjacentRows, T>(vecs);
    case 4:
      return product_tile_of_width<4, kAdjacentRows, T>(vecs);
    case 5:
      return product_tile_of_width<5, kAdjacentRows, T>(vecs);
    default:
      return product_tile_of_width<6, kAdjacentRows, T>(vecs);
  }
}

/// kAdjacentRows: a_row = 1 (A is stored depth by rows); otherwise a_depth = 1.
template <bool kAdjacentRows, class T = float>
INGOT_INLINE void product(const ProductOf<T>& p) {
  for (int64_t row = 0; row < p.rows; row += kTileRows)
    for (int64_t vec = 0; vec < p.vecs; vec += kTileVecs)
      product_tile_of<kAdjacentRows, T>(p.rows - row, p.vecs - vec)(p, row, vec);
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
      Vec r[kLanes];
      const int depth = static_cast<int>(width - j < kLanes ? width - j : kLanes);
      if (i + kLanes <= rows && depth == kLanes) {
#pragma GCC unroll 16
        for (int q = 0; q < kLanes; ++q) r[q] = load(x + (i + q) * stride + j);
        transpose(r);
#pragma GCC unroll 16
        for (int q = 0; q < kLanes; ++q) store(out + (j + q) * kAttentionBlock + i, r[q]);
        continue;
      }
      for (int q = 0; q < kLanes; ++q)
        r[q] = i + q < rows ? load_tail(x + (i + q) * stride + j, depth) : zero();
      transpose(r);
      for (int q = 0; q < depth; ++q) store(out + (j + q) * kAttentionBlock + i, r[q]);
    }
}

/// y[0 .. width) = x, rounded to T.
template <class T>
INGOT_INLINE void write_row(T* y, const float* x, int64_t width) {
  int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) store(y + j, load(x + j));
  if (j < width) store_tail(y + j, load(x + j), static_cast<int>(width - j));
}

}  // namespace ingot::INGOT_ISA
