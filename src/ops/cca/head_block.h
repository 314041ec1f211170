// What a block of threads of cca's kernels for GPUs does: a head of up to 64 rows beside each other, from the
// grouped convolution on; for cca*.cu.
#pragma once
#include "device/gemm/tile_products.h"
#include "ops/cca/gpu_cca.h"
#include "ops/cca/rows.h"

namespace ingot::INGOT_ISA {
namespace {

/// Rows of a head in shared memory: 64 of up to 128 channels, fewer of wider heads.
struct HeadTile {
  static constexpr int kFloats = kTile * (2 * kTile + 4);
  alignas(16) float x[kFloats];
};
/// Neighbours' rows begin in other banks, at multiples of 16 bytes.
INGOT_INLINE int head_stride(const CcaRows& p) {
  return (static_cast<int>(p.width) + 3) / 4 * 4 + 4;
}
INGOT_INLINE int head_rows(const CcaRows& p) {
  const int rows = HeadTile::kFloats / head_stride(p);
  return rows < kTile ? rows : kTile;
}

struct ConvolutionTiles {
  DepthTile u, weights[2];
};

INGOT_INLINE bool is_first_of_span(const GpuCca& a, int64_t t) {
  return t == 0 || a.views[t] != a.views[t - 1] + 1;
}
INGOT_INLINE bool is_last_of_span(const GpuCca& a, int64_t t) {
  return t + 1 == a.count || is_first_of_span(a, t + 1);
}

/// Rows of its span before row t: 0, 1, or 2 for any more.
INGOT_INLINE int rows_before(const GpuCca& a, int64_t t) {
  return is_first_of_span(a, t) ? 0 : is_first_of_span(a, t - 1) ? 1 : 2;
}
/// m channels of u of row t from channel e on; `before` rows of the span are before it, -1: it is t = -1.
template <class X>
INGOT_INLINE Vec u_n(const GpuCca& a, int64_t t, int before, int64_t e, int m) {
  const CcaRows& p = a.rows;
  const X* x = static_cast<const X*>(p.x) + t * row_width(p) + e;
  return convolved_n(p, e, before > 0 ? load_n(x - row_width(p), m) : zero(),
                     before >= 0 ? load_n(x, m) : zero(), m);
}

/// m grouped weights from number `first` on.
INGOT_INLINE Vec grouped_n(const GpuCca& a, int64_t first, int m) {
  if (a.grouped_is_rounded) return load_n(static_cast<const RoundedFloat*>(a.grouped) + first, m);
  if (a.grouped_type == DType::bf16) return load_n(static_cast<const bf16*>(a.grouped) + first, m);
  return load_n(static_cast<const float*>(a.grouped) + first, m);
}

/// `to` = c of head n of rows first .. first + count: chains over the channels of u_{t-1}, then of u_t. Meets
/// the block before and after each 16 of them, not at the end.
template <class X, int kParts>
INGOT_INLINE void convolve(const GpuCca& a, ConvolutionTiles& tiles, HeadTile& to, int64_t n, int64_t first,
                           int count) {
  const CcaRows& p = a.rows;
  const int64_t K = p.width, t = first + whole_row_of_thread();
  const bool has_row = whole_row_of_thread() < count, has_outputs = first_row_of_thread() < count;
  const int before = has_row ? rows_before(a, t) : 0;
  for (int64_t column = 0; column < K; column += kParts * kTile) {
    Outputs sums[kParts];
    INGOT_UNROLL
    for (int part = 0; part < kParts; ++part) sums[part] = no_outputs();
    for (int tap = 0; tap < 2; ++tap)
      for (int64_t k = 0; k < K; k += kDepth) {
        const int depth = static_cast<int>(min64(kDepth, K - k));
        if (has_row) put_turned(tiles.u, u_n<X>(a, t - 1 + tap, before - 1 + tap, n * K + k, depth));
        INGOT_UNROLL
        for (int part = 0; part < kParts; ++part) {
          const int64_t o = column + part * kTile + whole_row_of_thread();
          if (o < K) put_turned(tiles.weights[part], grouped_n(a, ((n * K + o) * 2 + tap) * K + k, depth));
        }
        sync_threads();
        INGOT_UNROLL
        for (int part = 0; part < kParts; ++part)
          if (has_outputs) add_channels(sums[part], tiles.u, tiles.weights[part], depth);
        sync_threads();
      }
    INGOT_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const int64_t o = column + part * kTile + vector_of_thread();
      const int m = static_cast<int>(min64(kLanes, K - o));
      INGOT_UNROLL
      for (int r = 0; r < kEach; ++r)
        if (m > 0 && first_row_of_thread() + r < count)
          store_n(to.x + (first_row_of_thread() + r) * head_stride(p) + o,
                  sums[part].row[r] + load_n(a.grouped_bias + n * K + o, m), m);
    }
  }
}

/// Calls f<X, Y, parts of 64 channels that a block has sums of>().
template <class F>
void with_types(const GpuCca& a, F&& f) {
  const CcaRows& p = a.rows;
  typed(p.x, p.x_type, [&]<class X>(const X*) {
    typed(p.d_y, p.y_type, [&]<class Y>(const Y*) {
      if (p.width <= kTile)
        f.template operator()<X, Y, 1>();
      else
        f.template operator()<X, Y, 2>();
    });
  });
}
/// Of 64 rows, as those of parameter_chunks.h.
inline int64_t chunks_of(const GpuCca& a) {
  return (a.count + kTile - 1) / kTile;
}

}  // namespace
}  // namespace ingot::INGOT_ISA
