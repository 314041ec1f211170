// See gpu_step.h.
#include "optim/gpu_step.h"

#include <algorithm>

#include "optim/gpu_optim.h"

namespace ingot {
namespace {

const char* gpu_refuses(const ParamView& p, std::span<const StoredValues> state) {
  const auto is_f32 = [](const StoredValues& v) { return v.storage == ValueStorage::f32; };
  if (p.compute != nullptr) return "weights have a copy to compute with";
  if (!is_f32(p.master) || !is_f32(p.grad)) return "weights or gradients are not f32";
  return std::all_of(state.begin(), state.end(), is_f32) ? nullptr : "moments are not f32";
}

std::vector<double> gpu_sum_squares(std::span<const ParamView> params) {
  std::vector<int64_t> counts;
  for (const ParamView& p : params) counts.push_back(p.numel());
  const TensorChunks chunks = chunks_of(std::move(counts));
  std::vector<GpuSumSquares::Part> parts;
  for (const Chunk& c : chunks.list)
    parts.push_back(
        {static_cast<const float*>(params[static_cast<size_t>(c.tensor)].grad.data) + c.begin, c.count});
  GpuWorkspace memory;
  const int64_t tensors = std::ssize(params);
  auto* const sums = memory.scratch<double>(tensors);
  INGOT_GPU_CALL(launch_sum_squares)
  ({}, {memory.list(parts),
        chunks.size(),
        memory.scratch<double>(chunks.size()),
        {memory.list(chunks.first), tensors},
        sums});
  return memory.read(sums, tensors);
}

ClipFactor gpu_clip_factor(std::span<const double> sum_squares, double grad_scale, double max_norm,
                           double loss) {
  GpuWorkspace memory;
  auto* const factor = memory.scratch<double>(1);
  auto* const is_finite = memory.scratch<int32_t>(1);
  INGOT_GPU_CALL(launch_clip_factor)
  ({}, {memory.list(sum_squares), std::ssize(sum_squares), grad_scale, max_norm,
        memory.list(std::span<const double>(&loss, 1)), factor, is_finite});
  return {memory.read(is_finite, 1).front() != 0, memory.read(factor, 1).front()};
}

std::vector<UpdateStat> gpu_adamw(std::span<const AdamWChunk> parts, const TensorChunks& chunks) {
  GpuWorkspace memory;
  auto* const sums = memory.scratch<UpdateSums>(chunks.size());
  INGOT_GPU_CALL(launch_adamw)({}, {memory.list(parts), chunks.size(), sums});
  return gpu_update_stats(memory, sums, chunks.first, {}, chunks.counts);
}

}  // namespace

std::vector<UpdateStat> gpu_update_stats(GpuWorkspace& memory, const UpdateSums* sums,
                                         std::span<const int64_t> first_chunk,
                                         std::span<const int64_t> first_block,
                                         std::span<const int64_t> counts) {
  const int64_t tensors = std::ssize(counts);
  auto* const stats = memory.scratch<GpuUpdateStat>(tensors);
  INGOT_GPU_CALL(launch_update_stats)
  ({}, {sums, memory.list(first_chunk), memory.list(first_block), tensors, memory.list(counts), stats});
  std::vector<UpdateStat> result;
  for (const GpuUpdateStat& s : memory.read(stats, tensors)) result.push_back({s.update_rms, s.weight_rms});
  return result;
}

const UpdateKernels& gpu_update_kernels() {
  static const UpdateKernels kernels{"cuda",    gpu_refuses, gpu_sum_squares, gpu_clip_factor,
                                     gpu_adamw, gpu_muon,    gpu_qk_clip,     gpu_balance};
  return kernels;
}

}  // namespace ingot
