// The optimizer on a GPU: 16 threads a chunk, each one of the 16 lanes in which the CPU's kernels add.
#include "optim/adamw_element.h"
#include "optim/gpu_optim.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kThreads = 128;
constexpr unsigned kSumLanes = 16;

INGOT_INLINE int64_t chunk_of_thread() {
  return global_thread() / kSumLanes;
}
INGOT_INLINE int64_t lane_of_thread() {
  return thread_index() % kSumLanes;
}

struct Doubles {
  double x[kThreads];
};

INGOT_KERNEL(kThreads)
sum_squares_kernel(const GpuSumSquares a) {
  INGOT_SHARED(Doubles, lanes);
  const int64_t chunk = chunk_of_thread();
  double own = 0;
  if (chunk < a.chunks)
    for (int64_t i = lane_of_thread(); i < a.parts[chunk].count; i += kSumLanes) {
      const double value = a.parts[chunk].x[i];
      own += value * value;
    }
  lanes.x[thread_index()] = own;
  sync_threads();
  if (lane_of_thread() != 0 || chunk >= a.chunks) return;
  double* const t = lanes.x + thread_index();
  for (unsigned width = kSumLanes / 2; width > 0; width /= 2)
    for (unsigned l = 0; l < width; ++l) t[l] += t[l + width];
  a.partial[chunk] = t[0];
}

INGOT_KERNEL(kThreads)
sums_of_tensors_kernel(const GpuSumSquares a) {
  const int64_t t = global_thread();
  if (t >= a.of.tensors) return;
  double sum = 0;
  for (int64_t c = a.of.first[t]; c < a.of.first[t + 1]; ++c) sum += a.partial[c];
  a.sums[t] = sum;
}

INGOT_INLINE bool is_finite(double x) {
  return x - x == 0;
}

/// One thread: tensors are few, and their sums are added in order.
INGOT_KERNEL(1)
clip_kernel(const GpuClip a) {
  double total = 0;
  bool finite = is_finite(*a.loss);
  for (int64_t t = 0; t < a.tensors; ++t) {
    total += a.sum_squares[t];
    finite = finite && is_finite(a.sum_squares[t]);
  }
  const double norm = sqrt_rn(total) * (a.grad_scale < 0 ? -a.grad_scale : a.grad_scale);
  const double factor = a.max_norm / (norm + 1e-6);
  *a.factor = a.max_norm > 0 && factor < 1.0 ? factor : 1.0;
  *a.is_finite = finite ? 1 : 0;
}

/// The tree of sum_lanes() (kernel_parts.h); all 16 threads know the result.
INGOT_INLINE float sum_of_lanes(float x) {
  INGOT_UNROLL
  for (unsigned apart = kSumLanes / 2; apart > 0; apart /= 2) x = x + shuffle_xor<kSumLanes>(x, apart);
  return x;
}

template <bool mixing>
INGOT_INLINE UpdateSums update_lane(const AdamWChunk& a) {
  float* const w = static_cast<float*>(a.master.data);
  const float* const grad = static_cast<const float*>(a.grad.data);
  float* const m = static_cast<float*>(a.exp_avg.data);
  float* const v = static_cast<float*>(a.exp_avg_sq.data);
  float* const slow = static_cast<float*>(a.exp_avg_slow.data);
  const AdamWFactors factors = factors_of(a);
  float update_sq = 0, weight_sq = 0;
  for (int64_t i = lane_of_thread(); i < a.count; i += kSumLanes) {
    const float before = w[i];
    const float after = adamw_element<mixing>(factors, grad[i], before, m[i], v[i], slow + (mixing ? i : 0));
    w[i] = after;
    const float d = after - before;
    update_sq += d * d;
    weight_sq += after * after;
  }
  return {update_sq, weight_sq};
}

INGOT_KERNEL(kThreads)
adamw_kernel(const GpuAdamW a) {
  const int64_t chunk = chunk_of_thread();
  if (chunk >= a.chunks) return;
  const AdamWChunk& part = a.parts[chunk];
  const UpdateSums own =
      part.exp_avg_slow.data != nullptr ? update_lane<true>(part) : update_lane<false>(part);
  const UpdateSums all{sum_of_lanes(own.update_sq), sum_of_lanes(own.weight_sq)};
  if (lane_of_thread() == 0) a.sums[chunk] = all;
}

INGOT_KERNEL(kThreads)
stats_kernel(const GpuAdamW a) {
  const int64_t t = global_thread();
  if (t >= a.of.tensors) return;
  double update = 0, weight = 0;
  for (int64_t c = a.of.first[t]; c < a.of.first[t + 1]; ++c) {
    update += static_cast<double>(a.sums[c].update_sq);
    weight += static_cast<double>(a.sums[c].weight_sq);
  }
  const double n = static_cast<double>(a.counts[t] > 1 ? a.counts[t] : 1);
  a.stats[t] = {sqrt_rn(update / n), sqrt_rn(weight / n)};
}

GpuGrid grid_of_chunks(int64_t chunks) {
  return grid_of(chunks * kSumLanes, kThreads);
}

}  // namespace

void launch_sum_squares(GpuStream stream, const GpuSumSquares& args) {
  launch("sum_squares", sum_squares_kernel, grid_of_chunks(args.chunks), stream, args);
  launch("sums_of_tensors", sums_of_tensors_kernel, grid_of(args.of.tensors, kThreads), stream, args);
}

void launch_clip_factor(GpuStream stream, const GpuClip& args) {
  launch("clip_factor", clip_kernel, {1, 1}, stream, args);
}

void launch_adamw(GpuStream stream, const GpuAdamW& args) {
  launch("adamw", adamw_kernel, grid_of_chunks(args.chunks), stream, args);
  launch("update_stats", stats_kernel, grid_of(args.of.tensors, kThreads), stream, args);
}

}  // namespace ingot::INGOT_ISA
