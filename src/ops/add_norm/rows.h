// add_norm for a range of rows: the text of the kernels of every instruction set and of GPUs. Forward: merge
// and statistic in one pass over the row, then the normalised row while the stream is in the cache. Backward:
// one pass for the dot products and the norm's parameters, one for the rest. Formulas: add_norm.h.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/reduce.h"
#include "ops/add_norm/isa_add_norm.h"

namespace ingot::INGOT_ISA {
namespace {

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
INGOT_DEVICE_CODE void forward_rows(const AddNormRows& p, int64_t begin, int64_t end) {
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
      mean = tree_sum(sum) / width;
      if (writes_scalars()) p.mean[t] = mean;
      each_lane(D, [&](int v, int64_t i, int n) {
        // Missing elements of the tail must count as 0, not as -mean.
        const Vec centred = load_n(s + i, n) - set_n(mean, n);
        square.v[v] = fma(centred, centred, square.v[v]);
      });
    }
    const float r = 1.0f / square_root(tree_sum(square) / width + p.eps);
    if (writes_scalars()) p.rstd[t] = r;
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

/// What the gradient of s needs of the row: its statistics, and sums of g = d_h w and of g xhat.
struct RowTerms {
  float mean, r, sum_g, dot;
};

/// The row's terms; adds to the norm's parameter gradients if kSums.
template <bool kSums, class H>
INGOT_INLINE RowTerms row_terms(const AddNormRows& p, int64_t t, const float* s, const H* d_h,
                                const AddNormSums& sums) {
  const float r = p.rstd[t], mean = p.layer ? p.mean[t] : 0.0f;
  if (p.d_h == nullptr) return {mean, r, 0.0f, 0.0f};
  Lanes sum = lanes(0.0f), product = lanes(0.0f);
  each_lane(p.width, [&](int v, int64_t i, int n) {
    const Vec d = load_n(d_h + i, n), g = d * weight_n(p, i, n),
              xhat = (load_n(s + i, n) - set1(mean)) * set1(r);
    product.v[v] = fma(g, xhat, product.v[v]);
    if constexpr (kSums) add_product(sums.weight + i, d, xhat, n);
    if (p.layer) sum.v[v] = sum.v[v] + g;
    if constexpr (kSums)
      if (p.layer || p.bias != nullptr) add_to(sums.bias + i, d, n);
  });
  return {mean, r, tree_sum(sum), tree_sum(product)};
}

/// n elements of the gradient of s.
template <class H>
INGOT_INLINE Vec stream_gradient(const AddNormRows& p, const RowTerms& row, const float* s, const float* d_s,
                                 const H* d_h, int64_t i, int n) {
  const Vec grad = p.d_s != nullptr ? load_n(d_s + i, n) : zero();
  if (p.d_h == nullptr) return grad;
  const auto width = static_cast<float>(p.width);
  const Vec xhat = (load_n(s + i, n) - set1(row.mean)) * set1(row.r);
  const Vec g = load_n(d_h + i, n) * weight_n(p, i, n) + set1(-row.sum_g / width);
  return fma(fma(xhat, set1(-row.dot / width), g), set1(row.r), grad);
}

/// If kSums it adds to the sums, in the order of the rows; else it leaves the rows' terms for chunk_sums().
template <bool kSums, MergeKind M, class Y, class H>
INGOT_DEVICE_CODE void backward_rows(const AddNormRows& p, int64_t begin, int64_t end,
                                     const AddNormSums& sums) {
  constexpr bool kStream = M == MergeKind::affine || M == MergeKind::scaled;
  const int64_t D = p.width;
  for (int64_t t = begin; t < end; ++t) {
    const float* x = row(p.x, t, D);
    const Y* y = row(static_cast<const Y*>(p.y), t, D);
    const float* s = M == MergeKind::none ? x : p.s + t * D;
    const float* d_s = row(p.d_s, t, D);
    const H* d_h = row(static_cast<const H*>(p.d_h), t, D);
    const RowTerms terms = row_terms<kSums>(p, t, s, d_h, sums);
    if constexpr (!kSums && kStream)
      if (writes_scalars()) p.terms[2 * t] = terms.sum_g, p.terms[2 * t + 1] = terms.dot;
    each_lane(D, [&](int, int64_t i, int n) {
      const Vec grad = stream_gradient(p, terms, s, d_s, d_h, i, n);
      Vec to_x = grad;
      if constexpr (kStream) {
        to_x = grad * load_n(p.stream_scale + i, n);
        if constexpr (kSums) {
          add_to(sums.stream + i, grad, n);
          add_product(sums.stream_scale + i, grad, load_n(x + i, n) + load_n(p.stream_bias + i, n), n);
        }
      }
      if constexpr (kSums && M == MergeKind::scaled)
        add_product(sums.y_scale + i, grad, load_n(y + i, n) + load_n(p.y_bias + i, n), n);
      if (p.d_x != nullptr) put(p.d_x + t * D + i, to_x, n, p.accumulate_x);
      if constexpr (M == MergeKind::add || M == MergeKind::scaled) {
        Vec to_y = grad;
        if constexpr (M == MergeKind::scaled) to_y = grad * load_n(p.y_scale + i, n);
        if (p.d_y != nullptr) put(static_cast<Y*>(p.d_y) + t * D + i, to_y, n, p.accumulate_y);
      }
    });
  }
}

/// The sums of the rows begin .. end of n elements from i, which backward_rows<false>() left out.
template <MergeKind M, class Y, class H>
INGOT_DEVICE_CODE void chunk_sums(const AddNormRows& p, int64_t begin, int64_t end, int64_t i, int n,
                                  const AddNormSums& sums) {
  constexpr bool kStream = M == MergeKind::affine || M == MergeKind::scaled;
  const int64_t D = p.width;
  Vec weight = zero(), bias = zero(), stream = zero(), stream_scale = zero(), y_scale = zero();
  for (int64_t t = begin; t < end; ++t) {
    const float* x = row(p.x, t, D);
    const Y* y = row(static_cast<const Y*>(p.y), t, D);
    const float* s = M == MergeKind::none ? x : p.s + t * D;
    const H* d_h = row(static_cast<const H*>(p.d_h), t, D);
    RowTerms terms{p.layer ? p.mean[t] : 0.0f, p.rstd[t], 0.0f, 0.0f};
    if (p.d_h != nullptr) {
      const Vec d = load_n(d_h + i, n);
      weight = fma(d, (load_n(s + i, n) - set1(terms.mean)) * set1(terms.r), weight);
      bias = bias + d;
    }
    if constexpr (kStream) {
      terms.sum_g = p.terms[2 * t], terms.dot = p.terms[2 * t + 1];
      const Vec grad = stream_gradient(p, terms, s, row(p.d_s, t, D), d_h, i, n);
      stream = stream + grad;
      stream_scale = fma(grad, load_n(x + i, n) + load_n(p.stream_bias + i, n), stream_scale);
      if constexpr (M == MergeKind::scaled)
        y_scale = fma(grad, load_n(y + i, n) + load_n(p.y_bias + i, n), y_scale);
    }
  }
  store_n(sums.weight + i, weight, n);
  store_n(sums.bias + i, bias, n);
  if constexpr (kStream) {
    store_n(sums.stream + i, stream, n);
    store_n(sums.stream_scale + i, stream_scale, n);
    store_n(sums.y_scale + i, y_scale, n);
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
}  // namespace ingot::INGOT_ISA
