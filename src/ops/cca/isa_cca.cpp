// The row-wise parts of cca, compiled once per instruction set: depthwise convolution, mean skip, norm,
// temperature, rotation, delayed values, and their backward passes. Formulas: cca.h.
#include "ops/cca/isa_cca.h"

#include "device/simd/prefetch.h"
#include "ops/cca/rows.h"

namespace ingot::INGOT_ISA {
namespace {

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
  for (int64_t n = 0; n < heads_of(p); ++n) {
    float* u = p.u + at_block(p, n, view);
    const int64_t first = n * K;
    each_of_head<kWidth>(p, [&](int64_t i, int m) {
      const int64_t e = first + i;
      store_n(u + i, convolved_n(p, e, load_n(before + e, m), load_n(now + e, m), m), m);
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

template <int64_t kWidth, class X, class Y>
void finish(const CcaRows& p, const CcaPiece& piece) {
  const int64_t K = width_of<kWidth>(p), width = row_width(p), late = p.delayed;
  const float root = root_of_width(p);
  RowAngles angles;
  float head[kMaxHeadWidth];
  for (int64_t row = piece.begin; row < piece.end; ++row) {
    rotary_row(p.rotary, p.positions[row], angles.cosine, angles.sine);
    fetch_row(p, piece, p.y, p.y_type, row, 0, width);
    const X* x = static_cast<const X*>(p.x) + row * width;
    Y* y = static_cast<Y*>(p.y) + row * width;
    const int64_t view = piece.view + row - piece.span_begin;
    for (int64_t n = 0; n < heads_of(p); ++n) {
      const float inverse = head_before_norm<kWidth>(p, x, p.c + at_block(p, n, view), n, head);
      p.inverse_norms[row * heads_of(p) + n] = inverse;
      const float scale = scale_of(p, root, n, inverse);
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
  return p.inverse_norms[row * heads_of(p) + n];
}

template <int64_t kWidth, class X, class Y>
void finish_backward(const CcaRows& p, const CcaPiece& piece, const CcaSums& sums) {
  const int64_t K = width_of<kWidth>(p), width = row_width(p);
  const float root = root_of_width(p);
  RowAngles angles;
  float head[kMaxHeadWidth], grad[kMaxHeadWidth];
  for (int64_t row = piece.begin; row < piece.end; ++row) {
    rotary_row(p.rotary, p.positions[row], angles.cosine, angles.sine);
    fetch_row(p, piece, p.d_y, p.y_type, row, 0, channels(p));
    fetch_row(p, piece, p.y, p.y_type, row, 0, channels(p));
    const int64_t view = piece.view + row - piece.span_begin;
    for (int64_t n = 0; n < heads_of(p); ++n) {
      copy_n(grad, static_cast<const Y*>(p.d_y) + row * width + n * K, K);
      rotate_head(grad, angles, p.rotary, true);
      const float factor = factor_of(p, root, n);
      const float inverse = unit_head<kWidth, X, Y>(p, angles, row, view, n, factor, head);
      const float dot = row_dot(grad, head, p.width);
      if (n >= p.heads) sums.temperature[n - p.heads] += root * dot;
      const float scale = scale_of(p, root, n, inverse);
      float* d_c = p.d_c + at(p, n, view + 1);
      float* d_bias = sums.grouped_bias + n * K;
      each_of_head<kWidth>(p, [&](int64_t i, int m) {
        const Vec g = through_norm(load_n(grad + i, m), load_n(head + i, m), dot, scale);
        store_n(d_c + i, g, m);
        store_n(d_bias + i, load_n(d_bias + i, m) + g, m);
      });
    }
  }
}

template <int64_t kWidth, class X>
void depthwise_backward_row(const CcaRows& p, const CcaPiece& piece, const CcaSums& sums, int64_t row) {
  const int64_t K = width_of<kWidth>(p);
  const SpanRow at_row{row, piece.view + 1 + row - piece.span_begin, row == piece.span_begin,
                       row + 1 == piece.span_end};
  for (int64_t n = 0; n < heads_of(p); ++n) {
    const Group group = group_of(p, n);
    each_of_head<kWidth>(p, [&](int64_t i, int m) {
      const int64_t e = n * K + i;
      DepthwiseSums s{load_n(sums.older + e, m), load_n(sums.newer + e, m),
                      load_n(sums.depthwise_bias + e, m)};
      depthwise_backward_n<kWidth, X>(p, at_row, group, n, i, m, s);
      store_n(sums.older + e, s.older, m);
      store_n(sums.newer + e, s.newer, m);
      store_n(sums.depthwise_bias + e, s.bias, m);
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
  for (int64_t n = 0; n < heads_of(p); ++n) {
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
