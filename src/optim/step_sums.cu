// What micro-batches add to the sums of a step on a GPU.
#include "device/gpu/rt.h"
#include "optim/gpu_step_sums.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kThreads = 256;

struct Doubles {
  double x[kThreads];
};

/// One block.
INGOT_KERNEL(kThreads)
add_logprobs_kernel(const GpuLogprobs a) {
  INGOT_SHARED(Doubles, sums);
  double own = 0;
  for (int64_t t = thread_index(); t < a.rows; t += kThreads)
    if (a.targets[t] >= 0) own += a.logprob[t];
  sums.x[thread_index()] = own;
  sync_threads();
  if (thread_index() != 0) return;
  for (int i = 1; i < kThreads; ++i) own += sums.x[i];
  *a.sum += own;
}

INGOT_KERNEL(kThreads)
add_values_kernel(const GpuValues a) {
  const int64_t i = global_thread();
  if (i >= a.count) return;
  const double value = a.values[i], sum = a.sums[i];
  a.sums[i] = !a.largest ? sum + value : sum < value ? value : sum;
}

}  // namespace

void launch_add_logprobs(GpuStream stream, const GpuLogprobs& args) {
  launch("add_logprobs", add_logprobs_kernel, {1, kThreads}, stream, args);
}

void launch_add_values(GpuStream stream, const GpuValues& args) {
  launch("add_values", add_values_kernel, grid_of(args.count, kThreads), stream, args);
}

}  // namespace ingot::INGOT_ISA
