// mla_latents and mla_pack for a range of rows, compiled once per instruction set; formulas in mla.h.
#include "ops/mla/isa_mla.h"

#include "ops/mla/rows.h"

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
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    const X* x = static_cast<const X*>(p.x) + t * down_width(p);
    for (int part = 0; part < 2; ++part) {
      norm_part(p, t, part, x, static_cast<Y*>(p.y[part]) + t * p.ranks[part]);
      x += p.ranks[part];
    }
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    put_rotated(static_cast<Y*>(p.y[2]) + t * p.rope, x, p.rope, angles, p.rotary, false, false);
  }
}

template <class X, class Y>
void latents_backward(const MlaLatentRows& p, int64_t begin, int64_t end, float* d_weights) {
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    const X* x = static_cast<const X*>(p.x) + t * down_width(p);
    X* d_x = p.d_x != nullptr ? static_cast<X*>(p.d_x) + t * down_width(p) : nullptr;
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
      clear_part(d_x, p.rope, p.accumulate);
      continue;
    }
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    put_rotated(d_x, static_cast<const Y*>(p.d_y[2]) + t * p.rope, p.rope, angles, p.rotary, true,
                p.accumulate);
  }
}

template <class T>
void pack_forward(const MlaPackRows& p, int64_t begin, int64_t end) {
  const PackWidths w = widths_of(p);
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
    const T* q = static_cast<const T*>(p.q) + t * p.heads * w.key;
    T* y = static_cast<T*>(p.y) + t * w.row;
    for (int64_t h = 0; h < p.heads; ++h) {
      copy_n(y + h * w.key, q + h * w.key, p.nope);
      put_rotated(y + h * w.key + p.nope, q + h * w.key + p.nope, p.rope, angles, p.rotary, false, false);
    }
    if (p.queries_only) continue;
    for (int64_t h = 0; h < p.heads; ++h) pack_key_and_value(p, w, t, h, y);
  }
}

template <class T>
void pack_backward(const MlaPackRows& p, int64_t begin, int64_t end) {
  const PackWidths w = widths_of(p);
  RowAngles angles;
  for (int64_t t = begin; t < end; ++t) {
    const T* g = static_cast<const T*>(p.d_y) + t * w.row;
    if (p.d_q != nullptr) {
      rotary_row(p.rotary, p.positions[t], angles.cosine, angles.sine);
      T* d_q = static_cast<T*>(p.d_q) + t * p.heads * w.key;
      for (int64_t h = 0; h < p.heads; ++h) {
        copy_n(d_q + h * w.key, g + h * w.key, p.nope, p.accumulate_q);
        put_rotated(d_q + h * w.key + p.nope, g + h * w.key + p.nope, p.rope, angles, p.rotary, true,
                    p.accumulate_q);
      }
    }
    if (p.d_kv != nullptr)
      for (int64_t h = 0; h < p.heads; ++h) unpack_key_and_value(p, w, t, h, g);
    if (p.d_k_rope != nullptr)
      each_vector(p.rope, [&](int64_t i, int n) { unpack_shared_key_n(p, w, t, g, i, n); });
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
