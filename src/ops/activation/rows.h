// activation for a range of rows: the text of the kernels of every instruction set and of GPUs.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/prefetch.h"
#include "device/simd/reduce.h"
#include "ops/activation/isa_activation.h"

namespace ingot::INGOT_ISA {
namespace {

template <ActivationFunction F, bool kGated, class X, class Y>
INGOT_DEVICE_CODE void forward_rows(const ActivationRows& a, int64_t begin, int64_t end) {
  const int64_t width = a.width, stride = kGated ? 2 * width : width;
  for (int64_t t = begin; t < end; ++t) {
    const X* x = static_cast<const X*>(a.x) + t * stride;
    Y* y = static_cast<Y*>(a.y) + t * width;
    const Vec p = set1(a.p != nullptr ? a.p[t] : 1.0f);
    each_vector(width, [&](int64_t i, int n) {
      prefetch_after(x + i), prefetch_after(y + i);
      if constexpr (kGated) prefetch_after(x + width + i);
      Vec f = evaluate<F>(a.cap, load_n(x + i, n)).f;
      if constexpr (kGated) f = f * load_n(x + width + i, n);
      store_n(y + i, a.p != nullptr ? f * p : f, n);
    });
  }
}

/// One vector of the gradients of x; returns d f u, whose sum is the gradient of p.
template <ActivationFunction F, bool kGated, class X, class Y>
INGOT_INLINE Vec backward_vector(const SoftCapFactors& cap, const X* x, const Y* d_y, X* d_x, int64_t width,
                                 Vec p, int n, bool accumulate) {
  const int64_t second = width * int64_t{sizeof(X)};
  prefetch_after(x), prefetch_after(d_y), prefetch_after(d_x);
  if constexpr (kGated)
    prefetch_after(x, second + kPrefetchBytes), prefetch_after(d_x, second + kPrefetchBytes);
  const ValueAndSlope v = evaluate<F>(cap, load_n(x, n));
  const Vec d = load_n(d_y, n), d_p = d * p;
  if constexpr (kGated) {
    const Vec u = load_n(x + width, n);
    if (d_x != nullptr) {
      put_n(d_x, d_p * v.df * u, n, accumulate);
      put_n(d_x + width, d_p * v.f, n, accumulate);
    }
    return d * v.f * u;
  } else {
    if (d_x != nullptr) put_n(d_x, d_p * v.df, n, accumulate);
    return d * v.f;
  }
}

template <ActivationFunction F, bool kGated, class X, class Y>
INGOT_DEVICE_CODE void backward_rows(const ActivationRows& a, int64_t begin, int64_t end) {
  const int64_t width = a.width, stride = kGated ? 2 * width : width;
  for (int64_t t = begin; t < end; ++t) {
    const X* x = static_cast<const X*>(a.x) + t * stride;
    const Y* d_y = static_cast<const Y*>(a.d_y) + t * width;
    X* d_x = a.d_x != nullptr ? static_cast<X*>(a.d_x) + t * stride : nullptr;
    const Vec p = set1(a.p != nullptr ? a.p[t] : 1.0f);
    const auto vector = [&](int64_t i, int n) {
      return backward_vector<F, kGated>(a.cap, x + i, d_y + i, d_x != nullptr ? d_x + i : nullptr, width, p,
                                        n, a.accumulate_x);
    };
    if (a.d_p == nullptr) {
      each_vector(width, vector);
      continue;
    }
    Lanes sum = lanes(0.0f);  // element i belongs to lane i % 16; missing elements of the tail have d = 0
    for (int64_t j = 0; j < width; j += kVirtualLanes)
      for (int v = 0; v < kLaneVecs; ++v) {
        const int64_t i = j + v * kLanes;
        if (i < width)
          sum.v[v] = sum.v[v] + vector(i, width - i < kLanes ? static_cast<int>(width - i) : kLanes);
      }
    const float d_p = tree_sum(sum);
    if (writes_scalars()) a.d_p[t] = d_p + (a.accumulate_p ? a.d_p[t] : 0.0f);
  }
}

/// Calls f<function, gated, X, Y>() for the call's.
template <class F>
void with_types(const ActivationRows& a, F&& f) {
  const bool x16 = a.x_type == DType::bf16, y16 = a.y_type == DType::bf16;
  const auto types = [&]<ActivationFunction K, bool kGated>() {
    if (x16 && y16)
      f.template operator()<K, kGated, bf16, bf16>();
    else if (x16)
      f.template operator()<K, kGated, bf16, float>();
    else if (y16)
      f.template operator()<K, kGated, float, bf16>();
    else
      f.template operator()<K, kGated, float, float>();
  };
  switch (a.function) {
    case ActivationFunction::gelu:
      return types.template operator()<ActivationFunction::gelu, false>();
    case ActivationFunction::gelu_tanh:
      if (a.gated) return types.template operator()<ActivationFunction::gelu_tanh, true>();
      return types.template operator()<ActivationFunction::gelu_tanh, false>();
    case ActivationFunction::relu2:
      return types.template operator()<ActivationFunction::relu2, false>();
    case ActivationFunction::soft_cap:
      return types.template operator()<ActivationFunction::soft_cap, false>();
    case ActivationFunction::silu:
      if (a.gated) return types.template operator()<ActivationFunction::silu, true>();
      return types.template operator()<ActivationFunction::silu, false>();
  }
}

}  // namespace
}  // namespace ingot::INGOT_ISA
