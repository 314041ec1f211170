// qk_prepare for a range of rows, compiled once per instruction set. A head is normed and rotated in a buffer
// on the stack and rounded once on its way out.
#include "ops/qk_prepare/isa_qk_prepare.h"

#include "ops/sequence/head_vectors.h"

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
    for (int64_t h = 0; h < heads; ++h, x += K, y += K) {
      if (p.norm) {
        const float* w = p.weights[h >= p.heads];
        const float r = 1.0f / __builtin_sqrtf(row_sum_squares(x, K) / static_cast<float>(K) + p.eps);
        p.rstd[t * heads + h] = r;
        each_vector(K, [&](int64_t i, int n) {
          const Vec v = load_n(x + i, n) * set1(r);
          store_n(head + i, w != nullptr ? v * load_n(w + i, n) : v, n);
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

/// The norm's backward of one head: `grad` (rotated back) becomes the gradient of x.
template <class X>
void norm_backward(const X* x, float* grad, const float* w, float r, int64_t K, float* d_w) {
  float normed[kMaxHeadWidth];
  each_vector(K, [&](int64_t i, int n) {
    const Vec v = load_n(x + i, n) * set1(r), g = load_n(grad + i, n);
    store_n(normed + i, v, n);
    if (d_w != nullptr) store_n(d_w + i, fma(g, v, load_n(d_w + i, n)), n);
    if (w != nullptr) store_n(grad + i, g * load_n(w + i, n), n);
  });
  const float mean = row_dot(grad, normed, K) / static_cast<float>(K);
  each_vector(K, [&](int64_t i, int n) {
    const Vec centred = fma(load_n(normed + i, n), set1(-mean), load_n(grad + i, n));
    store_n(grad + i, centred * set1(r), n);
  });
}

template <class X, class Y>
void backward_rows(const QkPrepareRows& p, int64_t begin, int64_t end, float* d_weights) {
  const int64_t K = p.width, heads = p.heads + p.kv_heads, row_width = (heads + p.kv_heads) * K;
  RowAngles angles;
  float grad[kMaxHeadWidth];
  for (int64_t t = begin; t < end; ++t) {
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    const Y* d_y = static_cast<const Y*>(p.d_y) + t * row_width;
    for (int64_t h = 0; h < heads; ++h) {
      const bool key = h >= p.heads;
      copy_n(grad, d_y + h * K, K);
      rotate_head(grad, angles, p.rotary, true);
      if (p.norm)
        norm_backward(static_cast<const X*>(p.x) + t * row_width + h * K, grad, p.weights[key],
                      p.rstd[t * heads + h], K, d_weights != nullptr ? d_weights + key * K : nullptr);
      if (p.d_x != nullptr) copy_n(static_cast<X*>(p.d_x) + t * row_width + h * K, grad, K, p.accumulate);
    }
    if (p.d_x != nullptr)
      copy_n(static_cast<X*>(p.d_x) + t * row_width + heads * K, d_y + heads * K, p.kv_heads * K,
             p.accumulate);
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
