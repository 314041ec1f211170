// qk_prepare for a range of rows, compiled once per instruction set. A head is normed and rotated in a buffer
// on the stack and rounded once on its way out.
#include "ops/qk_prepare/isa_qk_prepare.h"

#include "ops/qk_prepare/rows.h"

namespace ingot::INGOT_ISA {
namespace {

template <class X, class Y>
void forward_rows(const QkPrepareRows& p, int64_t begin, int64_t end) {
  const int64_t K = p.width, heads = p.heads + p.kv_heads, row_width = (heads + p.kv_heads) * K;
  RowAngles angles;
  float head[kMaxHeadWidth];
  for (int64_t t = begin; t < end; ++t) {
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    const X* x = static_cast<const X*>(p.x) + t * row_width;
    Y* y = static_cast<Y*>(p.y) + t * row_width;
    float r = 1;
    for (int64_t h = 0; h < heads; ++h, x += K, y += K) {
      if (p.norm) {
        const float* w = weight_of(p, h);
        if (h == first_sharing(p, h)) {
          r = norm_of(p, x, sharing(p, h));
          rstd_of(p, t, h) = r;
        }
        each_vector(K, [&](int64_t i, int n) {
          const Vec v = load_n(x + i, n) * set1(r);
          store_n(head + i, w != nullptr ? weighted(p, load_n(w + i, n), v) : v, n);
        });
      } else {
        copy_n(head, x, K);
      }
      rotate_head(head, angles, p.rotary, false);
      copy_n(y, head, K);
    }
    copy_n(y, x, p.kv_heads * K);
  }
}

/// From the gradient of a normed head to that of x r, in place; adds to the weight's gradient. Returns its
/// dot product with x r, which is written to `normed`.
template <class X>
float weigh(const QkPrepareRows& p, const X* x, float* grad, float* normed, const float* w, float r,
            float* d_w) {
  each_vector(p.width, [&](int64_t i, int n) {
    const Vec v = load_n(x + i, n) * set1(r), g = load_n(grad + i, n);
    store_n(normed + i, v, n);
    if (d_w != nullptr) store_n(d_w + i, fma(g, v, load_n(d_w + i, n)), n);
    if (w != nullptr) store_n(grad + i, weighted(p, load_n(w + i, n), g), n);
  });
  return row_dot(grad, normed, p.width);
}

/// Heads that share a norm: the first pass has the dot product that the second subtracts. One head alone
/// needs one pass.
template <class X, class Y>
void backward_heads(const QkPrepareRows& p, int64_t t, int64_t first, const RowAngles& angles,
                    float* d_weights) {
  const int64_t K = p.width, row = t * (p.heads + 2 * p.kv_heads) * K, shared = sharing(p, first);
  const Y* d_y = static_cast<const Y*>(p.d_y) + row;
  float grad[kMaxHeadWidth], normed[kMaxHeadWidth];
  const auto turned_back = [&](int64_t h) {
    copy_n(grad, d_y + h * K, K);
    rotate_head(grad, angles, p.rotary, true);
  };
  const float r = p.norm ? rstd_of(p, t, first) : 1;
  const auto weighed = [&](int64_t h, float* d_w) {
    return weigh(p, static_cast<const X*>(p.x) + row + h * K, grad, normed, weight_of(p, h), r, d_w);
  };
  float dot = 0;
  for (int64_t h = first; h < first + shared && p.norm; ++h) {
    turned_back(h);
    dot += weighed(h, d_weights != nullptr ? d_weights + weight_begin(p, h) : nullptr);
  }
  if (p.d_x == nullptr) return;
  const float mean = dot / static_cast<float>(shared * K);
  for (int64_t h = first; h < first + shared; ++h) {
    if (!p.norm || shared > 1) turned_back(h);
    if (p.norm && shared > 1) weighed(h, nullptr);
    if (p.norm)
      each_vector(K, [&](int64_t i, int n) {
        store_n(grad + i, centred(load_n(grad + i, n), load_n(normed + i, n), mean, r), n);
      });
    copy_n(static_cast<X*>(p.d_x) + row + h * K, grad, K, p.accumulate);
  }
}

template <class X, class Y>
void backward_rows(const QkPrepareRows& p, int64_t begin, int64_t end, float* d_weights) {
  const int64_t K = p.width, heads = p.heads + p.kv_heads, row_width = (heads + p.kv_heads) * K;
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    for (int64_t h = 0; h < heads; h += sharing(p, h)) backward_heads<X, Y>(p, t, h, angles, d_weights);
    if (p.d_x != nullptr)
      copy_n(static_cast<X*>(p.d_x) + t * row_width + heads * K,
             static_cast<const Y*>(p.d_y) + t * row_width + heads * K, p.kv_heads * K, p.accumulate);
  }
}

}  // namespace

void qk_prepare_forward(const QkPrepareRows& p, int64_t begin, int64_t end) {
  const bool x16 = p.x_type == DType::bf16, y16 = p.y_type == DType::bf16;
  if (x16 && y16) return forward_rows<bf16, bf16>(p, begin, end);
  if (x16) return forward_rows<bf16, float>(p, begin, end);
  if (y16) return forward_rows<float, bf16>(p, begin, end);
  forward_rows<float, float>(p, begin, end);
}

void qk_prepare_backward(const QkPrepareRows& p, int64_t begin, int64_t end, float* d_weights) {
  const bool x16 = p.x_type == DType::bf16, y16 = p.y_type == DType::bf16;
  if (x16 && y16) return backward_rows<bf16, bf16>(p, begin, end, d_weights);
  if (x16) return backward_rows<bf16, float>(p, begin, end, d_weights);
  if (y16) return backward_rows<float, bf16>(p, begin, end, d_weights);
  backward_rows<float, float>(p, begin, end, d_weights);
}

}  // namespace ingot::INGOT_ISA
