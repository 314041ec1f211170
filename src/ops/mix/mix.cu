// mix on a GPU: four threads for 16 columns of a row; for the scalars' gradients a block for 64 rows.
#include "device/simd/row_kernels.h"
#include "ops/mix/gpu_mix.h"
#include "ops/mix/rows.h"

namespace ingot::INGOT_ISA {
namespace {

/// The 16 columns of a row, or fewer, that four threads work on: counted from the first mixed column where
/// they are mixed.
struct Part {
  int64_t row, i;
  int n;
  bool is_mixed;
};
INGOT_INLINE Part part_of_thread(const MixRows& p) {
  const int64_t copied = (p.first + kLanes - 1) / kLanes, mixed = p.width - p.first,
                parts = copied + (mixed + kLanes - 1) / kLanes, part = row_of_thread() % parts;
  const bool is_mixed = part >= copied;
  const int64_t i = (is_mixed ? part - copied : part) * kLanes;
  return {row_of_thread() / parts, i, static_cast<int>(min64(kLanes, (is_mixed ? mixed : p.first) - i)),
          is_mixed};
}

template <class A, class B, class Y>
INGOT_KERNEL(kRowKernelThreads)
forward_kernel(const MixRows p, int64_t rows) {
  const Part at = part_of_thread(p);
  if (at.row >= rows) return;
  const A* a = static_cast<const A*>(p.a);
  Y* y = static_cast<Y*>(p.y);
  const int64_t copied = at.row * p.width + at.i;
  if (at.is_mixed)
    mix_n(p, a, static_cast<const B*>(p.b), y, alpha_of(p), beta_of(p), at.row, at.i, at.n);
  else
    copy_n(y + copied, a + copied, at.n);
}

template <class A, class B, class Y>
INGOT_KERNEL(kRowKernelThreads)
backward_kernel(const MixRows p, int64_t rows) {
  const Part at = part_of_thread(p);
  if (at.row >= rows) return;
  A* d_a = static_cast<A*>(p.d_a);
  const Y* d_y = static_cast<const Y*>(p.d_y);
  const int64_t copied = at.row * p.width + at.i;
  if (at.is_mixed)
    mix_gradient_n(p, d_a, static_cast<B*>(p.d_b), d_y, alpha_of(p), beta_of(p), at.row, at.i, at.n);
  else if (d_a != nullptr)
    copy_n(d_a + copied, d_y + copied, at.n, p.accumulate_a);
}

constexpr int kSumRows = 64;

struct RowDots {
  float a[kSumRows], b[kSumRows];
};

/// Four threads a row; then one adds the rows' parts in order.
template <class A, class B, class Y>
INGOT_KERNEL(kSumRows* kThreadsOfRow)
sums_kernel(const MixRows p, int64_t rows, float* sums) {
  INGOT_SHARED(RowDots, dots);
  const int64_t t = row_of_thread(), begin = int64_t{block_index()} * kSumRows;
  const A* a = static_cast<const A*>(p.a);
  const B* b = static_cast<const B*>(p.b);
  const Y* d_y = static_cast<const Y*>(p.d_y);
  if (t < rows) {
    const float of_a = a != nullptr ? mixed_dot(p, a, mixed_begin(p, t), d_y, t) : 0.0f;
    const float of_b = b != nullptr ? mixed_dot(p, b, b_begin(p, t), d_y, t) : 0.0f;
    if (writes_scalars()) dots.a[t - begin] = of_a, dots.b[t - begin] = of_b;
  }
  sync_threads();
  if (thread_index() > 0) return;
  float sum_a = 0, sum_b = 0;
  for (int64_t i = 0; i < min64(kSumRows, rows - begin); ++i) {
    if (a != nullptr) sum_a = add_rn(sum_a, dots.a[i]);
    if (b != nullptr) sum_b = add_rn(sum_b, dots.b[i]);
  }
  sums[2 * block_index()] = sum_a, sums[2 * block_index() + 1] = sum_b;
}

GpuGrid grid_of_parts(const MixRows& p, int64_t rows) {
  return grid_of_rows(rows * ((p.first + kLanes - 1) / kLanes + (p.width - p.first + kLanes - 1) / kLanes));
}

/// Calls f<A, B, Y>() for the call's types.
template <class F>
void with_types(const MixRows& p, F&& f) {
  typed(p.a, p.a_type, [&]<class A>(const A*) {
    typed(p.b, p.b_type, [&]<class B>(const B*) {
      typed(p.d_y, p.y_type, [&]<class Y>(const Y*) { f.template operator()<A, B, Y>(); });
    });
  });
}

}  // namespace

void launch_mix_forward(GpuStream stream, const MixRows& p, int64_t rows) {
  with_types(p, [&]<class A, class B, class Y>() {
    launch("mix_forward", forward_kernel<A, B, Y>, grid_of_parts(p, rows), stream, p, rows);
  });
}

void launch_mix_backward(GpuStream stream, const MixRows& p, int64_t rows) {
  with_types(p, [&]<class A, class B, class Y>() {
    launch("mix_backward", backward_kernel<A, B, Y>, grid_of_parts(p, rows), stream, p, rows);
  });
}

void launch_mix_sums(GpuStream stream, const MixRows& p, int64_t rows, float* sums) {
  with_types(p, [&]<class A, class B, class Y>() {
    launch("mix_sums", sums_kernel<A, B, Y>, {(rows + kSumRows - 1) / kSumRows, kSumRows * kThreadsOfRow},
           stream, p, rows, sums);
  });
}

}  // namespace ingot::INGOT_ISA
