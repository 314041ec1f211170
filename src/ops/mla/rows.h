// What mla_latents and mla_pack do to a row, but for rotations: the text of the kernels of every instruction
// set and of GPUs.
#pragma once
#include "device/simd/reduce.h"
#include "ops/mla/isa_mla.h"
#include "ops/sequence/head_vectors.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_INLINE int64_t down_width(const MlaLatentRows& p) {
  return p.ranks[0] + p.ranks[1] + p.rope;
}

/// Norms part 0 (queries' latent) or 1 of row t. x, y, g, d_x: the part's elements of that row.
template <class X, class Y>
INGOT_INLINE void norm_part(const MlaLatentRows& p, int64_t t, int part, const X* x, Y* y) {
  const int64_t n = p.ranks[part];
  const float* w = p.weights[part];
  const float r = n > 0 ? 1.0f / square_root(row_sum_squares(x, n) / static_cast<float>(n) + p.eps) : 0.0f;
  if (writes_scalars()) p.rstd[t * 2 + part] = r;
  each_vector(n, [&](int64_t i, int k) { store_n(y + i, load_n(x + i, k) * set1(r) * load_n(w + i, k), k); });
}

template <class X>
INGOT_INLINE void clear_part(X* d_x, int64_t n, bool accumulate) {
  if (d_x != nullptr && !accumulate) each_vector(n, [&](int64_t i, int k) { store_n(d_x + i, zero(), k); });
}

/// What a token adds to the gradients of n weights: sum + g x r.
template <class X, class Y>
INGOT_INLINE Vec weight_sum_n(const X* x, const Y* g, float r, Vec sum, int n) {
  return fma(load_n(g, n), load_n(x, n) * set1(r), sum);
}

/// The backward of one normed part; g may be nullptr (no cotangent). d_w: nullptr where sums of weights are
/// formed elsewhere, or not at all.
template <class X, class Y>
INGOT_INLINE void norm_part_backward(const X* x, const Y* g, const float* w, float r, int64_t n, X* d_x,
                                     bool accumulate, float* d_w) {
  if (g == nullptr) return clear_part(d_x, n, accumulate);
  Lanes dot = lanes(0.0f);
  each_lane(n, [&](int lane, int64_t i, int k) {
    const Vec normed = load_n(x + i, k) * set1(r), d = load_n(g + i, k);
    dot.v[lane] = fma(d * load_n(w + i, k), normed, dot.v[lane]);
    if (d_w != nullptr) store_n(d_w + i, weight_sum_n(x + i, g + i, r, load_n(d_w + i, k), k), k);
  });
  if (d_x == nullptr) return;
  const Vec minus_mean = set1(-tree_sum(dot) / static_cast<float>(n));
  each_vector(n, [&](int64_t i, int k) {
    const Vec normed = load_n(x + i, k) * set1(r);
    const Vec centred = fma(normed, minus_mean, load_n(g + i, k) * load_n(w + i, k));
    put_n(d_x + i, centred * set1(r), k, accumulate);
  });
}

/// How a packed row is divided: queries of all heads, then their keys, then their values.
struct PackWidths {
  int64_t key, up;            ///< of a head: of a query or key; of kv
  int64_t row, keys, values;  ///< keys, values: where those of the first head begin
};
INGOT_INLINE PackWidths widths_of(const MlaPackRows& p) {
  const int64_t key = p.nope + p.rope, all_keys = p.heads * key;
  return {key, p.nope + p.value, p.queries_only ? all_keys : 2 * all_keys + p.heads * p.value, all_keys,
          2 * all_keys};
}

/// The key and the value of head h in a packed row y.
template <class T>
INGOT_INLINE void pack_key_and_value(const MlaPackRows& p, const PackWidths& w, int64_t t, int64_t h, T* y) {
  const T* kv = static_cast<const T*>(p.kv) + (t * p.heads + h) * w.up;
  T* key = y + w.keys + h * w.key;
  copy_n(key, kv, p.nope);
  copy_n(key + p.nope, static_cast<const T*>(p.k_rope) + t * p.rope, p.rope);
  copy_n(y + w.values + h * p.value, kv + p.nope, p.value);
}

/// The gradient of kv of head h, from a packed row g.
template <class T>
INGOT_INLINE void unpack_key_and_value(const MlaPackRows& p, const PackWidths& w, int64_t t, int64_t h,
                                       const T* g) {
  T* d_kv = static_cast<T*>(p.d_kv) + (t * p.heads + h) * w.up;
  copy_n(d_kv, g + w.keys + h * w.key, p.nope, p.accumulate_kv);
  copy_n(d_kv + p.nope, g + w.values + h * p.value, p.value, p.accumulate_kv);
}

/// n channels from channel i of the gradient of k_rope: the sum over ascending heads.
template <class T>
INGOT_INLINE void unpack_shared_key_n(const MlaPackRows& p, const PackWidths& w, int64_t t, const T* g,
                                      int64_t i, int n) {
  const T* from = g + w.keys + p.nope + i;
  Vec sum = load_n(from, n);
  for (int64_t h = 1; h < p.heads; ++h) sum = sum + load_n(from + h * w.key, n);
  put_n(static_cast<T*>(p.d_k_rope) + t * p.rope + i, sum, n, p.accumulate_k_rope);
}

}  // namespace
}  // namespace ingot::INGOT_ISA
