// mla_latents and mla_pack for a range of rows, compiled once per instruction set; formulas in mla.h.
#include "ops/mla/isa_mla.h"

#include "ops/sequence/head_vectors.h"

namespace ingot::INGOT_ISA {
namespace {

/// to (+)= the rotated head part `x`, through a buffer of fp32.
template <class T, class X>
INGOT_INLINE void put_rotated(T* to, const X* x, int64_t width, const RowAngles& angles,
                              const RotaryTable& table, bool inverse, bool accumulate) {
  float head[kMaxHeadWidth];
  copy_n(head, x, width);
  rotate_head(head, angles, table, inverse);
  copy_n(to, head, width, accumulate);
}

template <class X, class Y>
void latents_forward(const MlaLatentRows& p, int64_t begin, int64_t end) {
  const int64_t width = p.ranks[0] + p.ranks[1] + p.rope;
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    const X* x = static_cast<const X*>(p.x) + t * width;
    for (int part = 0; part < 2; ++part) {
      const int64_t n = p.ranks[part];
      const float* w = p.weights[part];
      Y* y = static_cast<Y*>(p.y[part]) + t * n;
      const float r =
          n > 0 ? 1.0f / __builtin_sqrtf(row_sum_squares(x, n) / static_cast<float>(n) + p.eps) : 0.0f;
      p.rstd[t * 2 + part] = r;
      each_vector(
          n, [&](int64_t i, int k) { store_n(y + i, load_n(x + i, k) * set1(r) * load_n(w + i, k), k); });
      x += n;
    }
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    put_rotated(static_cast<Y*>(p.y[2]) + t * p.rope, x, p.rope, angles, p.rotary, false, false);
  }
}

/// The backward of one normed part; g may be nullptr (no cotangent).
template <class X, class Y>
void norm_part_backward(const X* x, const Y* g, const float* w, float r, int64_t n, X* d_x, bool accumulate,
                        float* d_w) {
  if (g == nullptr) {
    if (d_x != nullptr && !accumulate) each_vector(n, [&](int64_t i, int k) { store_n(d_x + i, zero(), k); });
    return;
  }
  Lanes dot = lanes(0.0f);
  each_lane(n, [&](int lane, int64_t i, int k) {
    const Vec normed = load_n(x + i, k) * set1(r), d = load_n(g + i, k);
    dot.v[lane] = fma(d * load_n(w + i, k), normed, dot.v[lane]);
    if (d_w != nullptr) store_n(d_w + i, fma(d, normed, load_n(d_w + i, k)), k);
  });
  if (d_x == nullptr) return;
  const Vec minus_mean = set1(-tree_sum(dot) / static_cast<float>(n));
  each_vector(n, [&](int64_t i, int k) {
    const Vec normed = load_n(x + i, k) * set1(r);
    const Vec centred = fma(normed, minus_mean, load_n(g + i, k) * load_n(w + i, k));
    put_n(d_x + i, centred * set1(r), k, accumulate);
  });
}

template <class X, class Y>
void latents_backward(const MlaLatentRows& p, int64_t begin, int64_t end, float* d_weights) {
  const int64_t width = p.ranks[0] + p.ranks[1] + p.rope;
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    const X* x = static_cast<const X*>(p.x) + t * width;
    X* d_x = p.d_x != nullptr ? static_cast<X*>(p.d_x) + t * width : nullptr;
    float* d_w = d_weights;
    for (int part = 0; part < 2; ++part) {
      const int64_t n = p.ranks[part];
      const Y* g = p.d_y[part] != nullptr ? static_cast<const Y*>(p.d_y[part]) + t * n : nullptr;
      norm_part_backward(x, g, p.weights[part], p.rstd[t * 2 + part], n, d_x, p.accumulate, d_w);
      x += n;
      if (d_x != nullptr) d_x += n;
      if (d_w != nullptr) d_w += n;
    }
    if (d_x == nullptr) continue;
    if (p.d_y[2] == nullptr) {
      if (!p.accumulate) each_vector(p.rope, [&](int64_t i, int k) { store_n(d_x + i, zero(), k); });
      continue;
    }
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    put_rotated(d_x, static_cast<const Y*>(p.d_y[2]) + t * p.rope, p.rope, angles, p.rotary, true,
                p.accumulate);
  }
}

template <class T>
void pack_forward(const MlaPackRows& p, int64_t begin, int64_t end) {
  const int64_t H = p.heads, K = p.nope + p.rope, up = p.nope + p.value;
  const int64_t width = p.queries_only ? H * K : H * (2 * K + p.value);
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    const T* q = static_cast<const T*>(p.q) + t * H * K;
    T* y = static_cast<T*>(p.y) + t * width;
    for (int64_t h = 0; h < H; ++h) {
      copy_n(y + h * K, q + h * K, p.nope);
      put_rotated(y + h * K + p.nope, q + h * K + p.nope, p.rope, angles, p.rotary, false, false);
    }
    if (p.queries_only) continue;
    const T* kv = static_cast<const T*>(p.kv) + t * H * up;
    const T* shared = static_cast<const T*>(p.k_rope) + t * p.rope;
    T *keys = y + H * K, *values = y + 2 * H * K;
    for (int64_t h = 0; h < H; ++h) {
      copy_n(keys + h * K, kv + h * up, p.nope);
      copy_n(keys + h * K + p.nope, shared, p.rope);
      copy_n(values + h * p.value, kv + h * up + p.nope, p.value);
    }
  }
}

template <class T>
void pack_backward(const MlaPackRows& p, int64_t begin, int64_t end) {
  const int64_t H = p.heads, K = p.nope + p.rope, up = p.nope + p.value;
  const int64_t width = p.queries_only ? H * K : H * (2 * K + p.value);
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    const T* g = static_cast<const T*>(p.d_y) + t * width;
    const T *keys = g + H * K, *values = g + 2 * H * K;
    if (p.d_q != nullptr) {
      rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
      T* d_q = static_cast<T*>(p.d_q) + t * H * K;
      for (int64_t h = 0; h < H; ++h) {
        copy_n(d_q + h * K, g + h * K, p.nope, p.accumulate_q);
        put_rotated(d_q + h * K + p.nope, g + h * K + p.nope, p.rope, angles, p.rotary, true, p.accumulate_q);
      }
    }
    if (p.d_kv != nullptr) {
      T* d_kv = static_cast<T*>(p.d_kv) + t * H * up;
      for (int64_t h = 0; h < H; ++h) {
        copy_n(d_kv + h * up, keys + h * K, p.nope, p.accumulate_kv);
        copy_n(d_kv + h * up + p.nope, values + h * p.value, p.value, p.accumulate_kv);
      }
    }
    if (p.d_k_rope != nullptr) {
      float sum[kMaxHeadWidth];
      for (int64_t h = 0; h < H; ++h) copy_n(sum, keys + h * K + p.nope, p.rope, h > 0);
      copy_n(static_cast<T*>(p.d_k_rope) + t * p.rope, sum, p.rope, p.accumulate_k_rope);
    }
  }
}

}  // namespace

void mla_latents_forward(const MlaLatentRows& p, int64_t begin, int64_t end) {
  const bool x16 = p.x_type == DType::bf16, y16 = p.y_type == DType::bf16;
  if (x16 && y16) return latents_forward<bf16, bf16>(p, begin, end);
  if (x16) return latents_forward<bf16, float>(p, begin, end);
  if (y16) return latents_forward<float, bf16>(p, begin, end);
  latents_forward<float, float>(p, begin, end);
}

void mla_latents_backward(const MlaLatentRows& p, int64_t begin, int64_t end, float* d_weights) {
  const bool x16 = p.x_type == DType::bf16, y16 = p.y_type == DType::bf16;
  if (x16 && y16) return latents_backward<bf16, bf16>(p, begin, end, d_weights);
  if (x16) return latents_backward<bf16, float>(p, begin, end, d_weights);
  if (y16) return latents_backward<float, bf16>(p, begin, end, d_weights);
  latents_backward<float, float>(p, begin, end, d_weights);
}

void mla_pack_forward(const MlaPackRows& p, int64_t begin, int64_t end) {
  if (p.type == DType::bf16) return pack_forward<bf16>(p, begin, end);
  pack_forward<float>(p, begin, end);
}

void mla_pack_backward(const MlaPackRows& p, int64_t begin, int64_t end) {
  if (p.type == DType::bf16) return pack_backward<bf16>(p, begin, end);
  pack_backward<float>(p, begin, end);
}

}  // namespace ingot::INGOT_ISA
