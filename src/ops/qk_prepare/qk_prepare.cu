// qk_prepare on a GPU: four threads for a head of a row, or for heads that share a norm; sums over rows by
// four threads for 16 channels of a chunk.
#include "device/simd/row_kernels.h"
#include "ops/qk_prepare/gpu_qk_prepare.h"
#include "ops/qk_prepare/rows.h"

namespace ingot::INGOT_ISA {
namespace {

/// The heads of a row that four threads work on: those that share a norm, or one of values.
struct Heads {
  int64_t row, first, count;
  bool are_values;
};
INGOT_INLINE int64_t norms_of_row(const QkPrepareRows& p) {
  return p.joint ? 2 : p.heads + p.kv_heads;
}
INGOT_INLINE Heads heads_of_thread(const QkPrepareRows& p) {
  const int64_t norms = norms_of_row(p), parts = norms + p.kv_heads, part = row_of_thread() % parts;
  Heads at{row_of_thread() / parts, p.heads + p.kv_heads + part - norms, 1, part >= norms};
  if (at.are_values) return at;
  at.first = !p.joint ? part : part == 0 ? 0 : p.heads;
  at.count = sharing(p, at.first);
  return at;
}
INGOT_INLINE int64_t row_begin(const QkPrepareRows& p, int64_t t) {
  return t * (p.heads + 2 * p.kv_heads) * p.width;
}

template <class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
forward_kernel(const QkPrepareRows p, int64_t rows) {
  const Heads at = heads_of_thread(p);
  if (at.row >= rows) return;
  const int64_t K = p.width, begin = row_begin(p, at.row) + at.first * K;
  const X* x = static_cast<const X*>(p.x) + begin;
  Y* y = static_cast<Y*>(p.y) + begin;
  if (at.are_values) return copy_n(y, x, K);
  float r = 1;
  if (p.norm) {
    r = norm_of(p, x, at.count);
    if (writes_scalars()) rstd_of(p, at.row, at.first) = r;
  }
  for (int64_t h = at.first; h < at.first + at.count; ++h, x += K, y += K) {
    const float* w = weight_of(p, h);
    const auto normed = [&](int64_t c) {
      Vec v = set1(widened(x[c]));
      if (p.norm) v = v * set1(r);
      return any_lane(w != nullptr ? weighted(p, set1(w[c]), v) : v);
    };
    each_vector(K, [&](int64_t i, int n) {
      store_n(y + i, turned_n(p.rotary, p.positions[at.row], false, i, n, normed), n);
    });
  }
}

/// n channels, from channel i of head h, of the gradient of a head before its rotation.
template <class Y>
INGOT_INLINE Vec turned_back_n(const QkPrepareRows& p, int64_t t, int64_t h, int64_t i, int n) {
  const Y* d_y = static_cast<const Y*>(p.d_y) + row_begin(p, t) + h * p.width;
  return turned_n(p.rotary, p.positions[t], true, i, n, [&](int64_t c) { return widened(d_y[c]); });
}
/// The same of x r.
template <class X>
INGOT_INLINE Vec normed_n(const QkPrepareRows& p, int64_t t, int64_t h, float r, int64_t i, int n) {
  return load_n(static_cast<const X*>(p.x) + row_begin(p, t) + h * p.width + i, n) * set1(r);
}

template <class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
backward_kernel(const QkPrepareRows p, int64_t rows) {
  const Heads at = heads_of_thread(p);
  if (at.row >= rows) return;
  const int64_t K = p.width, begin = row_begin(p, at.row) + at.first * K, end = at.first + at.count;
  X* d_x = static_cast<X*>(p.d_x) + begin;
  if (at.are_values) return copy_n(d_x, static_cast<const Y*>(p.d_y) + begin, K, p.accumulate);
  const float r = p.norm ? rstd_of(p, at.row, at.first) : 1;
  const auto gradient_n = [&](int64_t h, int64_t i, int n) {
    const Vec grad = turned_back_n<Y>(p, at.row, h, i, n);
    const float* w = weight_of(p, h);
    return w != nullptr ? weighted(p, load_n(w + i, n), grad) : grad;
  };
  float dot = 0;
  for (int64_t h = at.first; h < end && p.norm; ++h) {
    Lanes sum = lanes(0.0f);
    each_lane(K, [&](int v, int64_t i, int n) {
      sum.v[v] = fma(gradient_n(h, i, n), normed_n<X>(p, at.row, h, r, i, n), sum.v[v]);
    });
    dot += tree_sum(sum);
  }
  const float mean = dot / static_cast<float>(at.count * K);
  for (int64_t h = at.first; h < end; ++h, d_x += K)
    each_vector(K, [&](int64_t i, int n) {
      const Vec grad = gradient_n(h, i, n);
      put_n(d_x + i, p.norm ? centred(grad, normed_n<X>(p, at.row, h, r, i, n), mean, r) : grad, n,
            p.accumulate);
    });
}

/// Groups of four threads: 16 channels of each weight in the first chunk, in the second, ...
template <class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
sums_kernel(const QkPrepareRows p, int64_t rows, int64_t chunk, float* sums, int64_t stride) {
  const int64_t parts_of_head = (p.width + kLanes - 1) / kLanes,
                parts = (p.joint ? p.heads + p.kv_heads : 2) * parts_of_head, c = row_of_thread() / parts,
                which = row_of_thread() % parts / parts_of_head, i = row_of_thread() % parts_of_head * kLanes;
  if (c * chunk >= rows) return;
  const int64_t first = p.joint ? which : which * p.heads,
                end = p.joint ? first + 1 : first + (which == 0 ? p.heads : p.kv_heads);
  const int n = static_cast<int>(min64(kLanes, p.width - i));
  Vec sum = zero();
  for (int64_t t = c * chunk; t < min64(rows, (c + 1) * chunk); ++t)
    for (int64_t h = first; h < end; ++h)
      sum = fma(turned_back_n<Y>(p, t, h, i, n), normed_n<X>(p, t, h, rstd_of(p, t, h), i, n), sum);
  store_n(sums + c * stride + weight_begin(p, first) + i, sum, n);
}

/// Calls f<X, Y>() for the call's types.
template <class F>
void with_types(const QkPrepareRows& p, F&& f) {
  typed(p.x, p.x_type, [&]<class X>(const X*) {
    typed(p.d_y, p.y_type, [&]<class Y>(const Y*) { f.template operator()<X, Y>(); });
  });
}

GpuGrid grid_of_heads(const QkPrepareRows& p, int64_t rows) {
  return grid_of_rows(rows * ((p.joint ? 2 : p.heads + p.kv_heads) + p.kv_heads));
}

}  // namespace

void launch_qk_prepare_forward(GpuStream stream, const QkPrepareRows& p, int64_t rows) {
  with_types(p, [&]<class X, class Y>() {
    launch("qk_prepare_forward", forward_kernel<X, Y>, grid_of_heads(p, rows), stream, p, rows);
  });
}

void launch_qk_prepare_backward(GpuStream stream, const QkPrepareRows& p, int64_t rows) {
  with_types(p, [&]<class X, class Y>() {
    launch("qk_prepare_backward", backward_kernel<X, Y>, grid_of_heads(p, rows), stream, p, rows);
  });
}

void launch_qk_prepare_sums(GpuStream stream, const QkPrepareRows& p, int64_t rows, int64_t chunk,
                            float* sums, int64_t stride) {
  const int64_t parts = (p.joint ? p.heads + p.kv_heads : 2) * ((p.width + kLanes - 1) / kLanes);
  with_types(p, [&]<class X, class Y>() {
    launch("qk_prepare_sums", sums_kernel<X, Y>, grid_of_rows((rows + chunk - 1) / chunk * parts), stream, p,
           rows, chunk, sums, stride);
  });
}

}  // namespace ingot::INGOT_ISA
