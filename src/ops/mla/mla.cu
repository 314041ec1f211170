// mla_latents and mla_pack on a GPU: four threads for a part of a row, which is a latent, the rotary key, or
// a head; sums over rows by four threads for 16 channels of a chunk.
#include "device/simd/row_kernels.h"
#include "ops/mla/gpu_mla.h"
#include "ops/mla/rows.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kLatentParts = 3;  ///< two latents and the rotary key

/// to (+)= the rotated head part `x`.
template <class T, class X>
INGOT_INLINE void put_rotated(T* to, const X* x, int64_t width, const RotaryTable& table, int32_t position,
                              bool inverse, bool accumulate) {
  const auto channel = [&](int64_t c) { return widened(x[c]); };
  each_vector(width, [&](int64_t i, int n) {
    put_n(to + i, turned_n(table, position, inverse, i, n, channel), n, accumulate);
  });
}

/// The thread's row, and its part of it; where that begins in a row of `down`.
struct LatentPart {
  int64_t row, part, first;
};
/// The first parts of all rows, then the second: threads beside each other have as much to do.
INGOT_INLINE LatentPart part_of_thread(const MlaLatentRows& p, int64_t rows) {
  const int64_t part = row_of_thread() / rows, row = row_of_thread() % rows;
  return {row, part, row * down_width(p) + (part > 0 ? p.ranks[0] : 0) + (part > 1 ? p.ranks[1] : 0)};
}

template <class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
latents_kernel(const MlaLatentRows p, int64_t rows) {
  const LatentPart at = part_of_thread(p, rows);
  if (at.part >= kLatentParts) return;
  const X* x = static_cast<const X*>(p.x) + at.first;
  if (at.part == 0) return norm_part(p, at.row, 0, x, static_cast<Y*>(p.y[0]) + at.row * p.ranks[0]);
  if (at.part == 1) return norm_part(p, at.row, 1, x, static_cast<Y*>(p.y[1]) + at.row * p.ranks[1]);
  put_rotated(static_cast<Y*>(p.y[2]) + at.row * p.rope, x, p.rope, p.rotary, p.positions[at.row], false,
              false);
}

template <class X, class Y>
INGOT_INLINE void latent_backward(const MlaLatentRows& p, const LatentPart& at, int part) {
  const int64_t n = p.ranks[part];
  const Y* g = static_cast<const Y*>(p.d_y[part]);
  norm_part_backward(static_cast<const X*>(p.x) + at.first, g != nullptr ? g + at.row * n : nullptr,
                     p.weights[part], p.rstd[at.row * 2 + part], n, static_cast<X*>(p.d_x) + at.first,
                     p.accumulate, nullptr);
}

template <class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
latents_backward_kernel(const MlaLatentRows p, int64_t rows) {
  const LatentPart at = part_of_thread(p, rows);
  if (at.part >= kLatentParts) return;
  if (at.part == 0) return latent_backward<X, Y>(p, at, 0);
  if (at.part == 1) return latent_backward<X, Y>(p, at, 1);
  X* d_x = static_cast<X*>(p.d_x) + at.first;
  if (p.d_y[2] == nullptr) return clear_part(d_x, p.rope, p.accumulate);
  put_rotated(d_x, static_cast<const Y*>(p.d_y[2]) + at.row * p.rope, p.rope, p.rotary, p.positions[at.row],
              true, p.accumulate);
}

INGOT_INLINE int64_t vectors_of(int64_t width) {
  return (width + kLanes - 1) / kLanes;
}

/// Groups of four threads: 16 channels of both weights in the first chunk, in the second, ...
template <class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
latents_sums_kernel(const MlaLatentRows p, int64_t rows, int64_t chunk, float* sums) {
  const int64_t of_queries = vectors_of(p.ranks[0]), vectors = of_queries + vectors_of(p.ranks[1]),
                c = row_of_thread() / vectors, vector = row_of_thread() % vectors;
  if (c * chunk >= rows) return;
  const int part = vector < of_queries ? 0 : 1;
  const int64_t i = (vector - (part == 0 ? 0 : of_queries)) * kLanes, width = p.ranks[0] + p.ranks[1],
                first = part == 0 ? i : p.ranks[0] + i, rank = part == 0 ? p.ranks[0] : p.ranks[1];
  const int n = static_cast<int>(min64(kLanes, rank - i));
  const X* x = static_cast<const X*>(p.x) + first;
  const Y* g = static_cast<const Y*>(part == 0 ? p.d_y[0] : p.d_y[1]);
  Vec sum = zero();
  for (int64_t t = c * chunk; g != nullptr && t < min64(rows, (c + 1) * chunk); ++t)
    sum = weight_sum_n(x + t * down_width(p), g + t * rank + i, p.rstd[t * 2 + part], sum, n);
  store_n(sums + c * width + first, sum, n);
}

/// The heads of queries of the first row and then those of keys and values, those of the second row, ...
template <class T>
INGOT_KERNEL(kRowKernelThreads)
pack_kernel(const MlaPackRows p, int64_t rows) {
  const int64_t parts = p.queries_only ? p.heads : 2 * p.heads, t = row_of_thread() / parts,
                part = row_of_thread() % parts;
  if (t >= rows) return;
  const PackWidths w = widths_of(p);
  T* y = static_cast<T*>(p.y) + t * w.row;
  if (part >= p.heads) return pack_key_and_value(p, w, t, part - p.heads, y);
  const T* q = static_cast<const T*>(p.q) + (t * p.heads + part) * w.key;
  y += part * w.key;
  copy_n(y, q, p.nope);
  put_rotated(y + p.nope, q + p.nope, p.rope, p.rotary, p.positions[t], false, false);
}

/// What is wanted of a row: heads of queries, heads of keys and values, 16 channels each of k_rope.
struct WantedParts {
  int64_t queries, keys, shared;
};
INGOT_ANYWHERE WantedParts wanted_parts(const MlaPackRows& p) {
  return {p.d_q != nullptr ? p.heads : 0, p.d_kv != nullptr ? p.heads : 0,
          p.d_k_rope != nullptr ? (p.rope + kLanes - 1) / kLanes : 0};
}

template <class T>
INGOT_KERNEL(kRowKernelThreads)
pack_backward_kernel(const MlaPackRows p, int64_t rows) {
  const WantedParts wanted = wanted_parts(p);
  const int64_t parts = wanted.queries + wanted.keys + wanted.shared, t = row_of_thread() / parts;
  if (t >= rows) return;
  int64_t part = row_of_thread() % parts;
  const PackWidths w = widths_of(p);
  const T* g = static_cast<const T*>(p.d_y) + t * w.row;
  if (part < wanted.queries) {
    T* d_q = static_cast<T*>(p.d_q) + (t * p.heads + part) * w.key;
    g += part * w.key;
    copy_n(d_q, g, p.nope, p.accumulate_q);
    return put_rotated(d_q + p.nope, g + p.nope, p.rope, p.rotary, p.positions[t], true, p.accumulate_q);
  }
  part -= wanted.queries;
  if (part < wanted.keys) return unpack_key_and_value(p, w, t, part, g);
  const int64_t i = (part - wanted.keys) * kLanes;
  unpack_shared_key_n(p, w, t, g, i, static_cast<int>(min64(kLanes, p.rope - i)));
}

/// Calls f<X, Y>() for the call's types.
template <class F>
void with_types(const MlaLatentRows& p, F&& f) {
  typed(p.x, p.x_type, [&]<class X>(const X*) {
    typed(p.x, p.y_type, [&]<class Y>(const Y*) { f.template operator()<X, Y>(); });
  });
}

}  // namespace

void launch_mla_latents_forward(GpuStream stream, const MlaLatentRows& p, int64_t rows) {
  with_types(p, [&]<class X, class Y>() {
    launch("mla_latents_forward", latents_kernel<X, Y>, grid_of_rows(rows * kLatentParts), stream, p, rows);
  });
}

void launch_mla_latents_backward(GpuStream stream, const MlaLatentRows& p, int64_t rows) {
  with_types(p, [&]<class X, class Y>() {
    launch("mla_latents_backward", latents_backward_kernel<X, Y>, grid_of_rows(rows * kLatentParts), stream,
           p, rows);
  });
}

void launch_mla_latents_sums(GpuStream stream, const MlaLatentRows& p, int64_t rows, int64_t chunk,
                             float* sums) {
  const int64_t vectors = (p.ranks[0] + kLanes - 1) / kLanes + (p.ranks[1] + kLanes - 1) / kLanes;
  with_types(p, [&]<class X, class Y>() {
    launch("mla_latents_sums", latents_sums_kernel<X, Y>, grid_of_rows((rows + chunk - 1) / chunk * vectors),
           stream, p, rows, chunk, sums);
  });
}

void launch_mla_pack_forward(GpuStream stream, const MlaPackRows& p, int64_t rows) {
  typed(p.q, p.type, [&]<class T>(const T*) {
    launch("mla_pack_forward", pack_kernel<T>, grid_of_rows(rows * (p.queries_only ? 1 : 2) * p.heads),
           stream, p, rows);
  });
}

void launch_mla_pack_backward(GpuStream stream, const MlaPackRows& p, int64_t rows) {
  const WantedParts wanted = wanted_parts(p);
  typed(p.d_y, p.type, [&]<class T>(const T*) {
    launch("mla_pack_backward", pack_backward_kernel<T>,
           grid_of_rows(rows * (wanted.queries + wanted.keys + wanted.shared)), stream, p, rows);
  });
}

}  // namespace ingot::INGOT_ISA
