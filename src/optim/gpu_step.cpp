// See gpu_step.h.
#include "optim/gpu_step.h"

#include <algorithm>

#include "optim/gpu_optim.h"
#include "optim/work.h"

namespace ingot {
namespace {

const char* gpu_refuses(const ParamView& p, std::span<const StoredValues> state) {
  const auto is_f32 = [](const StoredValues& v) { return v.storage == ValueStorage::f32; };
  if (p.compute != nullptr) return "weights have a copy to compute with";
  if (!is_f32(p.master) || !is_f32(p.grad)) return "weights or gradients are not f32";
  return std::all_of(state.begin(), state.end(), is_f32) ? nullptr : "moments are not f32";
}

float* floats(const StoredValues& v) {
  return static_cast<float*>(v.data);
}

void gpu_sum_squares(std::span<const ParamView> params, double* sums, KeptLists* lists) {
  std::vector<int64_t> counts;
  std::vector<GpuSumSquares::Values> values;
  for (const ParamView& p : params) {
    counts.push_back(p.numel());
    values.push_back({floats(p.grad), p.numel()});
  }
  const TensorChunks chunks = chunks_of(std::move(counts));
  GpuWorkspace memory(lists);
  INGOT_GPU_CALL(launch_sum_squares)
  ({}, {{memory.list(chunks.first), std::ssize(params)},
        memory.list(values),
        {},
        chunks.size(),
        memory.scratch<double>(chunks.size()),
        sums});
}

void gpu_decide(std::span<const ParamView> params, const double* sum_squares, const double* loss,
                double max_norm, const StepScalars* scalars, UpdateDecision* decision) {
  INGOT_GPU_CALL(launch_decision)
  ({}, {sum_squares, std::ssize(params), max_norm, loss, scalars, decision});
}

void gpu_adamw(std::span<const AdamWTensor> tensors, const AdamWConfig& config, const DeviceStep& step) {
  std::vector<int64_t> counts, indices;
  std::vector<GpuAdamWTensor> list;
  for (const AdamWTensor& t : tensors) {
    const ParamView& p = *t.param;
    counts.push_back(p.numel());
    indices.push_back(t.index);
    list.push_back({floats(p.master), floats(p.grad), floats(t.exp_avg), floats(t.exp_avg_sq),
                    floats(t.exp_avg_slow), p.numel(), t.index, t.weight_decay});
  }
  const TensorChunks chunks = chunks_of(std::move(counts));
  GpuWorkspace memory(step.lists);
  auto* const sums = memory.scratch<UpdateSums>(chunks.size());
  INGOT_GPU_CALL(launch_adamw)
  ({}, {{memory.list(chunks.first), std::ssize(tensors)},
        memory.list(list),
        chunks.size(),
        config.beta1,
        config.beta2,
        config.eps,
        reinterpret_cast<const AdamWNumbers*>(step.numbers),
        step.rates,
        step.decision,
        sums});
  gpu_update_stats(memory, sums, {chunks.first, {}, chunks.counts, indices}, step.stats);
}

}  // namespace

void gpu_update_stats(GpuWorkspace& memory, const UpdateSums* sums, const GpuStatsOf& of, UpdateStat* stats) {
  static_assert(sizeof(GpuUpdateStat) == sizeof(UpdateStat));
  INGOT_GPU_CALL(launch_update_stats)
  ({}, {sums, memory.list(of.first_chunk), memory.list(of.first_block), std::ssize(of.counts),
        memory.list(of.counts), memory.list(of.indices), reinterpret_cast<GpuUpdateStat*>(stats)});
}

const UpdateKernels& gpu_update_kernels() {
  static const UpdateKernels kernels{"cuda",    gpu_refuses, gpu_sum_squares, gpu_decide,
                                     gpu_adamw, gpu_muon,    gpu_qk_clip,     gpu_balance};
  return kernels;
}

}  // namespace ingot
