// The row-wise parts of cca, compiled once per instruction set: depthwise convolution, mean skip, norm,
// temperature, rotation, delayed values, and their backward passes. Formulas: cca.h.
#include "ops/cca/isa_cca.h"

#include "device/simd/prefetch.h"
#include "ops/sequence/head_vectors.h"

namespace ingot::INGOT_ISA {
namespace {

/// A head's width as the compiler knows it; 0: only at run time.
template <int64_t kWidth>
INGOT_INLINE int64_t width_of(const CcaRows& p) {
  return kWidth != 0 ? kWidth : p.width;
}
template <int64_t kWidth, class F>
INGOT_INLINE void each_of_head(const CcaRows& p, F&& f) {
  if constexpr (kWidth != 0) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kWidth; i += kLanes) f(i, kLanes);
  } else {
    each_vector(p.width, f);
  }
}

int64_t channels(const CcaRows& p) {
  return (p.heads + p.kv_heads) * p.width;
}
int64_t row_width(const CcaRows& p) {
  return channels(p) + p.kv_heads * p.width;
}
/// Value channels of the token itself.
int64_t current(const CcaRows& p) {
  return p.kv_heads * p.width - p.delayed;
}
/// Head n at a view row of d_c.
int64_t at(const CcaRows& p, int64_t n, int64_t view) {
  return (n * p.view_rows + view) * p.width;
}
/// The same of u, c and d_u.
int64_t at_block(const CcaRows& p, int64_t n, int64_t view) {
  return (n * p.block_rows + view) * p.width;
}

/// Fetches, of a row to come of x, y, or their gradients, `width` elements from element `first`.
INGOT_INLINE void fetch_row(const CcaRows& p, const CcaPiece& piece, const void* rows, DType type,
                            int64_t row, int64_t first, int64_t width) {
  const int64_t size = type == DType::bf16 ? 2 : 4, ahead = row + prefetch_rows(row_width(p) * size / 2);
  if (rows != nullptr && ahead < piece.end)
    prefetch_range(static_cast<const char*>(rows) + (ahead * row_width(p) + first) * size, width * size);
}

/// u of one row from its own z and the one before.
template <int64_t kWidth, class Before, class Now>
void depthwise_row(const CcaRows& p, int64_t view, const Before* before, const Now* now) {
  const int64_t K = width_of<kWidth>(p);
  for (int64_t n = 0; n < p.heads + p.kv_heads; ++n) {
    float* u = p.u + at_block(p, n, view);
    const int64_t first = n * K;
    each_of_head<kWidth>(p, [&](int64_t i, int m) {
      const Vec old = fma(load_n(p.older + first + i, m), load_n(before + first + i, m),
                          load_n(p.depthwise_bias + first + i, m));
      store_n(u + i, fma(load_n(p.newer + first + i, m), load_n(now + first + i, m), old), m);
    });
  }
}

template <int64_t kWidth, class X>
void depthwise(const CcaRows& p, const CcaPiece& piece) {
  const int64_t width = row_width(p);
  for (int64_t row = piece.begin; row < piece.end; ++row) {
    const X* now = static_cast<const X*>(p.x) + row * width;
    const int64_t view = piece.view + 1 + row - piece.span_begin;
    fetch_row(p, piece, p.x, p.x_type, row, 0, channels(p));
    if (row == piece.span_begin)
      depthwise_row<kWidth>(p, view, piece.before1, now);
    else
      depthwise_row<kWidth>(p, view, now - width, now);
  }
}

/// A head and the heads that it shares a key with.
struct Group {
  int64_t ratio, key;  ///< query heads of a key; the key's number
};
INGOT_INLINE Group group_of(const CcaRows& p, int64_t n) {
  const int64_t ratio = p.heads / p.kv_heads;
  return {ratio, n < p.heads ? n / ratio : n - p.heads};
}

/// The mean skip: for a query head (q_h + k_j) / 2, for a key head (mean of its q_h + k_j) / 2.
template <int64_t kWidth, class X>
INGOT_INLINE Vec mean_skip(const CcaRows& p, const Group& g, const X* row, int64_t n, int64_t i, int m) {
  const int64_t K = width_of<kWidth>(p);
  Vec q;
  if (n < p.heads) {
    q = load_n(row + n * K + i, m);
  } else {
    q = load_n(row + g.key * g.ratio * K + i, m);
    for (int64_t h = g.key * g.ratio + 1; h < (g.key + 1) * g.ratio; ++h) q = q + load_n(row + h * K + i, m);
    q = q * set1(1.0f / static_cast<float>(g.ratio));
  }
  return set1(0.5f) * (q + load_n(row + (p.heads + g.key) * K + i, m));
}

/// The head before its norm goes to `head`; returns 1 / |head|.
template <int64_t kWidth, class X>
INGOT_INLINE float head_before_norm(const CcaRows& p, const X* row, const float* c, int64_t n, float* head) {
  const Group g = group_of(p, n);
  each_of_head<kWidth>(p, [&](int64_t i, int m) {
    store_n(head + i, load_n(c + i, m) + mean_skip<kWidth>(p, g, row, n, i, m), m);
  });
  return 1.0f / __builtin_sqrtf(row_sum_squares(head, p.width) + p.norm_eps);
}

template <int64_t kWidth, class X, class Y>
void finish(const CcaRows& p, const CcaPiece& piece) {
  const int64_t K = width_of<kWidth>(p), width = row_width(p), late = p.delayed;
  const float root = __builtin_sqrtf(static_cast<float>(K));
  RowAngles angles;
  float head[kMaxHeadWidth];
  for (int64_t row = piece.begin; row < piece.end; ++row) {
    rotary_row(p.rotary, p.positions[row], angles.cosine, angles.sine);
    fetch_row(p, piece, p.y, p.y_type, row, 0, width);
    const X* x = static_cast<const X*>(p.x) + row * width;
    Y* y = static_cast<Y*>(p.y) + row * width;
    const int64_t view = piece.view + row - piece.span_begin;
    for (int64_t n = 0; n < p.heads + p.kv_heads; ++n) {
      const float inverse = head_before_norm<kWidth>(p, x, p.c + at_block(p, n, view), n, head);
      p.inverse_norms[row * (p.heads + p.kv_heads) + n] = inverse;
      const float scale = inverse * root * (n < p.heads ? 1.0f : p.temperature[n - p.heads]);
      each_of_head<kWidth>(
          p, [&](int64_t i, int m) { store_n(head + i, load_n(head + i, m) * set1(scale), m); });
      rotate_head(head, angles, p.rotary, false);
      copy_n(y + n * K, head, K);
    }
    copy_n(y + channels(p), x + channels(p), current(p));
    if (row == piece.span_begin)
      copy_n(y + width - late, piece.before1 + channels(p), late);
    else
      copy_n(y + width - late, x - late, late);
  }
}

/// The head over its norm goes to `head`, from the result or from c; returns 1 / |head|.
template <int64_t kWidth, class X, class Y>
INGOT_INLINE float unit_head(const CcaRows& p, const RowAngles& angles, int64_t row, int64_t view, int64_t n,
                             float factor, float* head) {
  const int64_t K = width_of<kWidth>(p), width = row_width(p);
  if (p.y == nullptr) {
    const X* x = static_cast<const X*>(p.x) + row * width;
    const float inverse = head_before_norm<kWidth>(p, x, p.c + at_block(p, n, view), n, head);
    each_of_head<kWidth>(
        p, [&](int64_t i, int m) { store_n(head + i, load_n(head + i, m) * set1(inverse), m); });
    return inverse;
  }
  copy_n(head, static_cast<const Y*>(p.y) + row * width + n * K, K);
  rotate_head(head, angles, p.rotary, true);
  const Vec undo = set1(1.0f / factor);
  each_of_head<kWidth>(p, [&](int64_t i, int m) { store_n(head + i, load_n(head + i, m) * undo, m); });
  return p.inverse_norms[row * (p.heads + p.kv_heads) + n];
}

template <int64_t kWidth, class X, class Y>
void finish_backward(const CcaRows& p, const CcaPiece& piece, const CcaSums& sums) {
  const int64_t K = width_of<kWidth>(p), width = row_width(p);
  const float root = __builtin_sqrtf(static_cast<float>(K));
  RowAngles angles;
  float head[kMaxHeadWidth], grad[kMaxHeadWidth];
  for (int64_t row = piece.begin; row < piece.end; ++row) {
    rotary_row(p.rotary, p.positions[row], angles.cosine, angles.sine);
    fetch_row(p, piece, p.d_y, p.y_type, row, 0, channels(p));
    fetch_row(p, piece, p.y, p.y_type, row, 0, channels(p));
    const int64_t view = piece.view + row - piece.span_begin;
    for (int64_t n = 0; n < p.heads + p.kv_heads; ++n) {
      copy_n(grad, static_cast<const Y*>(p.d_y) + row * width + n * K, K);
      rotate_head(grad, angles, p.rotary, true);
      const float factor = root * (n < p.heads ? 1.0f : p.temperature[n - p.heads]);
      const float inverse = unit_head<kWidth, X, Y>(p, angles, row, view, n, factor, head);
      const float dot = row_dot(grad, head, p.width);
      if (n >= p.heads) sums.temperature[n - p.heads] += root * dot;
      const float scale = inverse * root * (n < p.heads ? 1.0f : p.temperature[n - p.heads]);
      float* d_c = p.d_c + at(p, n, view + 1);
      float* d_bias = sums.grouped_bias + n * K;
      each_of_head<kWidth>(p, [&](int64_t i, int m) {
        const Vec g = set1(scale) * fma(load_n(head + i, m), set1(-dot), load_n(grad + i, m));
        store_n(d_c + i, g, m);
        store_n(d_bias + i, load_n(d_bias + i, m) + g, m);
      });
    }
  }
}

/// What a channel of z gets through the mean skip.
INGOT_INLINE Vec mean_skip_backward(const CcaRows& p, const Group& g, int64_t n, int64_t view, int64_t i,
                                    int m) {
  const Vec key = load_n(p.d_c + at(p, p.heads + g.key, view) + i, m);
  if (n < p.heads)
    return set1(0.5f) *
           fma(key, set1(1.0f / static_cast<float>(g.ratio)), load_n(p.d_c + at(p, n, view) + i, m));
  Vec sum = load_n(p.d_c + at(p, g.key * g.ratio, view) + i, m);
  for (int64_t h = g.key * g.ratio + 1; h < (g.key + 1) * g.ratio; ++h)
    sum = sum + load_n(p.d_c + at(p, h, view) + i, m);
  return set1(0.5f) * (sum + key);
}

template <int64_t kWidth, class X>
void depthwise_backward_row(const CcaRows& p, const CcaPiece& piece, const CcaSums& sums, int64_t row) {
  const int64_t K = width_of<kWidth>(p), width = row_width(p), view = piece.view + 1 + row - piece.span_begin;
  const bool first = row == piece.span_begin, last = row + 1 == piece.span_end;
  const X* x = static_cast<const X*>(p.x) + row * width;
  X* d_x = static_cast<X*>(p.d_x) + row * width;
  for (int64_t n = 0; n < p.heads + p.kv_heads; ++n) {
    const float* d_u = p.d_u + at_block(p, n, view);
    const Group group = group_of(p, n);
    each_of_head<kWidth>(p, [&](int64_t i, int m) {
      const int64_t e = n * K + i;
      const Vec g = load_n(d_u + i, m);
      Vec d_bias = load_n(sums.depthwise_bias + e, m) + g;
      if (first)
        d_bias = d_bias + load_n(d_u - K + i, m);  // of u_{-1}
      else
        store_n(sums.older + e, fma(g, load_n(x - width + e, m), load_n(sums.older + e, m)), m);
      store_n(sums.depthwise_bias + e, d_bias, m);
      store_n(sums.newer + e, fma(g, load_n(x + e, m), load_n(sums.newer + e, m)), m);
      if (p.d_x == nullptr) return;
      Vec d_z = fma(load_n(p.newer + e, m), g, mean_skip_backward(p, group, n, view, i, m));
      if (!last) d_z = fma(load_n(p.older + e, m), load_n(d_u + K + i, m), d_z);
      put_n(d_x + e, d_z, m, p.accumulate);
    });
  }
}

template <int64_t kWidth, class X, class Y>
void depthwise_backward(const CcaRows& p, const CcaPiece& piece, const CcaSums& sums) {
  const int64_t width = row_width(p), late = p.delayed;
  for (int64_t row = piece.begin; row < piece.end; ++row) {
    fetch_row(p, piece, p.x, p.x_type, row, 0, channels(p));
    fetch_row(p, piece, p.d_x, p.x_type, row, 0, width);
    fetch_row(p, piece, p.d_y, p.y_type, row, channels(p), width - channels(p));
    depthwise_backward_row<kWidth, X>(p, piece, sums, row);
    if (p.d_x == nullptr) continue;
    const Y* d_y = static_cast<const Y*>(p.d_y) + row * width;
    X* d_x = static_cast<X*>(p.d_x) + row * width;
    copy_n(d_x + channels(p), d_y + channels(p), current(p), p.accumulate);
    if (row + 1 < piece.span_end)
      copy_n(d_x + width - late, d_y + 2 * width - late, late, p.accumulate);
    else if (!p.accumulate)
      each_vector(late, [&](int64_t i, int m) { store_n(d_x + width - late + i, zero(), m); });
  }
}

/// f.operator()<a head's width, type of x, type of y and d_y>.
template <int64_t kWidth, class F>
void by_types(const CcaRows& p, F&& f) {
  const bool x16 = p.x_type == DType::bf16, y16 = p.y_type == DType::bf16;
  if (x16 && y16) return f.template operator()<kWidth, bf16, bf16>();
  if (x16) return f.template operator()<kWidth, bf16, float>();
  if (y16) return f.template operator()<kWidth, float, bf16>();
  f.template operator()<kWidth, float, float>();
}
template <class F>
void by_width_and_types(const CcaRows& p, F&& f) {
  if (p.width == 64) return by_types<64>(p, f);
  if (p.width == 128) return by_types<128>(p, f);
  by_types<0>(p, f);
}

}  // namespace

void cca_span_start(const CcaRows& p, const CcaPiece& piece) {
  depthwise_row<0>(p, piece.view, piece.before2, piece.before1);
  if (p.d_c == nullptr) return;
  for (int64_t n = 0; n < p.heads + p.kv_heads; ++n) {
    float* d_c = p.d_c + at(p, n, piece.view);
    each_vector(p.width, [&](int64_t i, int m) { store_n(d_c + i, zero(), m); });
  }
}

void cca_depthwise(const CcaRows& p, const CcaPiece& piece) {
  by_width_and_types(p, [&]<int64_t kWidth, class X, class Y>() { depthwise<kWidth, X>(p, piece); });
}

void cca_finish(const CcaRows& p, const CcaPiece& piece) {
  by_width_and_types(p, [&]<int64_t kWidth, class X, class Y>() { finish<kWidth, X, Y>(p, piece); });
}

void cca_finish_backward(const CcaRows& p, const CcaPiece& piece, const CcaSums& sums) {
  by_width_and_types(
      p, [&]<int64_t kWidth, class X, class Y>() { finish_backward<kWidth, X, Y>(p, piece, sums); });
}

void cca_depthwise_backward(const CcaRows& p, const CcaPiece& piece, const CcaSums& sums) {
  by_width_and_types(
      p, [&]<int64_t kWidth, class X, class Y>() { depthwise_backward<kWidth, X, Y>(p, piece, sums); });
}

}  // namespace ingot::INGOT_ISA
