// add_norm for a range of rows, compiled once per instruction set. Forward: merge and statistic in one pass
// over the row, then the normalised row while the stream is in the cache. Backward: one pass for the dot
// products and the norm's parameters, one for the rest. Formulas: add_norm.h.
#include "ops/add_norm/isa_add_norm.h"

#include "device/simd/loops.h"
#include "device/simd/reduce.h"

namespace ingot::INGOT_ISA {
namespace {

/// x in the first n lanes, 0 in the others.
INGOT_INLINE Vec set_n(float x, int n) {
  if (n == kLanes) return set1(x);
  float all[kLanes];
  store(all, set1(x));
  return load_tail(all, n);
}
/// Row t of a tensor that may be absent.
template <class T>
INGOT_INLINE T* row(T* first, int64_t t, int64_t width) {
  return first != nullptr ? first + t * width : nullptr;
}

/// The norm's weight; multiplying by an absent one's 1 is exact.
INGOT_INLINE Vec weight_n(const AddNormRows& p, int64_t i, int n) {
  return p.weight != nullptr ? load_n(p.weight + i, n) + set1(p.weight_offset) : set1(1.0f);
}

template <MergeKind M, class Y>
INGOT_INLINE Vec merged(const AddNormRows& p, const float* x, const Y* y, int64_t i, int n) {
  Vec s = load_n(x + i, n);
  if constexpr (M == MergeKind::add) s = s + load_n(y + i, n);
  if constexpr (M == MergeKind::affine || M == MergeKind::scaled)
    s = (s + load_n(p.stream_bias + i, n)) * load_n(p.stream_scale + i, n);
  if constexpr (M == MergeKind::scaled)
    s = fma(load_n(y + i, n) + load_n(p.y_bias + i, n), load_n(p.y_scale + i, n), s);
  return s;
}

template <MergeKind M, class Y, class H>
void forward_rows(const AddNormRows& p, int64_t begin, int64_t end) {
  const int64_t D = p.width;
  const auto width = static_cast<float>(D);
  for (int64_t t = begin; t < end; ++t) {
    const float* x = p.x + t * D;
    const Y* y = row(static_cast<const Y*>(p.y), t, D);
    float* out = M == MergeKind::none ? nullptr : p.s + t * D;
    const float* s = M == MergeKind::none ? x : out;
    H* h = static_cast<H*>(p.h) + t * D;
    Lanes square = lanes(0.0f), sum = lanes(0.0f);
    each_lane(D, [&](int v, int64_t i, int n) {
      const Vec value = merged<M>(p, x, y, i, n);
      if constexpr (M != MergeKind::none) store_n(out + i, value, n);
      if (p.layer)
        sum.v[v] = sum.v[v] + value;
      else
        square.v[v] = fma(value, value, square.v[v]);
    });
    float mean = 0;
    if (p.layer) {
      mean = p.mean[t] = tree_sum(sum) / width;
      each_lane(D, [&](int v, int64_t i, int n) {
        // Missing elements of the tail must count as 0, not as -mean.
        const Vec centred = load_n(s + i, n) - set_n(mean, n);
        square.v[v] = fma(centred, centred, square.v[v]);
      });
    }
    const float r = p.rstd[t] = 1.0f / __builtin_sqrtf(tree_sum(square) / width + p.eps);
    each_lane(D, [&](int, int64_t i, int n) {
      const Vec normed = (load_n(s + i, n) - set1(mean)) * set1(r), w = weight_n(p, i, n);
      store_n(h + i, p.bias != nullptr ? fma(normed, w, load_n(p.bias + i, n)) : normed * w, n);
    });
  }
}

INGOT_INLINE void add_to(float* sum, Vec x, int n) {
  store_n(sum, load_n(sum, n) + x, n);
}
INGOT_INLINE void add_product(float* sum, Vec a, Vec b, int n) {
  store_n(sum, fma(a, b, load_n(sum, n)), n);
}
template <class T>
INGOT_INLINE void put(T* p, Vec x, int n, bool accumulate) {
  store_n(p, accumulate ? load_n(p, n) + x : x, n);
}

/// What the gradient of s needs of the row: sums of g = d_h w and of g xhat; adds to the norm's parameter
/// gradients.
template <class H>
INGOT_INLINE void norm_sums(const AddNormRows& p, const float* s, const H* d_h, float mean, float r,
                            const AddNormSums& sums, float& sum_g, float& dot) {
  Lanes sum = lanes(0.0f), product = lanes(0.0f);
  each_lane(p.width, [&](int v, int64_t i, int n) {
    const Vec d = load_n(d_h + i, n), g = d * weight_n(p, i, n),
              xhat = (load_n(s + i, n) - set1(mean)) * set1(r);
    product.v[v] = fma(g, xhat, product.v[v]);
    add_product(sums.weight + i, d, xhat, n);
    if (p.layer) sum.v[v] = sum.v[v] + g;
    if (p.layer || p.bias != nullptr) add_to(sums.bias + i, d, n);
  });
  sum_g = tree_sum(sum);
  dot = tree_sum(product);
}

template <MergeKind M, class Y, class H>
void backward_rows(const AddNormRows& p, int64_t begin, int64_t end, const AddNormSums& sums) {
  constexpr bool kStream = M == MergeKind::affine || M == MergeKind::scaled;
  const int64_t D = p.width;
  const auto width = static_cast<float>(D);
  for (int64_t t = begin; t < end; ++t) {
    const float* x = row(p.x, t, D);
    const Y* y = row(static_cast<const Y*>(p.y), t, D);
    const float* s = M == MergeKind::none ? x : p.s + t * D;
    const float* d_s = row(p.d_s, t, D);
    const H* d_h = row(static_cast<const H*>(p.d_h), t, D);
    const float r = p.rstd[t], mean = p.layer ? p.mean[t] : 0.0f;
    float sum_g = 0, dot = 0;
    if (p.d_h != nullptr) norm_sums(p, s, d_h, mean, r, sums, sum_g, dot);
    const Vec minus_mean_g = set1(-sum_g / width), minus_mean_dot = set1(-dot / width);
    each_lane(D, [&](int, int64_t i, int n) {
      Vec grad = p.d_s != nullptr ? load_n(d_s + i, n) : zero();
      if (p.d_h != nullptr) {
        const Vec xhat = (load_n(s + i, n) - set1(mean)) * set1(r);
        const Vec g = load_n(d_h + i, n) * weight_n(p, i, n) + minus_mean_g;
        grad = fma(fma(xhat, minus_mean_dot, g), set1(r), grad);
      }
      Vec to_x = grad;
      if constexpr (kStream) {
        to_x = grad * load_n(p.stream_scale + i, n);
        add_to(sums.stream + i, grad, n);
        add_product(sums.stream_scale + i, grad, load_n(x + i, n) + load_n(p.stream_bias + i, n), n);
      }
      if (p.d_x != nullptr) put(p.d_x + t * D + i, to_x, n, p.accumulate_x);
      if constexpr (M == MergeKind::add || M == MergeKind::scaled) {
        Vec to_y = grad;
        if constexpr (M == MergeKind::scaled) {
          to_y = grad * load_n(p.y_scale + i, n);
          add_product(sums.y_scale + i, grad, load_n(y + i, n) + load_n(p.y_bias + i, n), n);
        }
        if (p.d_y != nullptr) put(static_cast<Y*>(p.d_y) + t * D + i, to_y, n, p.accumulate_y);
      }
    });
  }
}

/// Calls f<merge, Y, H>() for the call's merge and types.
template <class F>
void with_types(const AddNormRows& p, F&& f) {
  const bool y16 = p.y_type == DType::bf16, h16 = p.h_type == DType::bf16;
  const auto merge = [&]<MergeKind M>() {
    if (y16 && h16)
      f.template operator()<M, bf16, bf16>();
    else if (y16)
      f.template operator()<M, bf16, float>();
    else if (h16)
      f.template operator()<M, float, bf16>();
    else
      f.template operator()<M, float, float>();
  };
  switch (p.merge) {
    case MergeKind::none:
      return merge.template operator()<MergeKind::none>();
    case MergeKind::add:
      return merge.template operator()<MergeKind::add>();
    case MergeKind::affine:
      return merge.template operator()<MergeKind::affine>();
    case MergeKind::scaled:
      return merge.template operator()<MergeKind::scaled>();
  }
}

}  // namespace

void add_norm_forward(const AddNormRows& p, int64_t begin, int64_t end) {
  with_types(p, [&]<MergeKind M, class Y, class H>() { forward_rows<M, Y, H>(p, begin, end); });
}

void add_norm_backward(const AddNormRows& p, int64_t begin, int64_t end, const AddNormSums& sums) {
  with_types(p, [&]<MergeKind M, class Y, class H>() { backward_rows<M, Y, H>(p, begin, end, sums); });
}

}  // namespace ingot::INGOT_ISA
