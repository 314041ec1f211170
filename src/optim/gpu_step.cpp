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
  std::vector<double> partial(parts.size()), sums(params.size());
  INGOT_GPU_CALL(launch_sum_squares)
  ({}, {parts.data(),
        chunks.size(),
        partial.data(),
        {chunks.first.data(), static_cast<int64_t>(params.size())},
        sums.data()});
  return sums;
}

ClipFactor gpu_clip_factor(std::span<const double> sum_squares, double grad_scale, double max_norm,
                           double loss) {
  double factor = 1;
  int32_t is_finite = 0;
  INGOT_GPU_CALL(launch_clip_factor)
  ({}, {sum_squares.data(), static_cast<int64_t>(sum_squares.size()), grad_scale, max_norm, &loss, &factor,
        &is_finite});
  return {is_finite != 0, factor};
}

std::vector<UpdateStat> gpu_adamw(std::span<const AdamWChunk> parts, const TensorChunks& chunks) {
  std::vector<UpdateSums> sums(parts.size());
  INGOT_GPU_CALL(launch_adamw)({}, {parts.data(), chunks.size(), sums.data()});
  return gpu_update_stats(sums, chunks.first, {}, chunks.counts);
}

}  // namespace

std::vector<UpdateStat> gpu_update_stats(std::span<const UpdateSums> sums,
                                         std::span<const int64_t> first_chunk,
                                         std::span<const int64_t> first_block,
                                         std::span<const int64_t> counts) {
  std::vector<GpuUpdateStat> stats(counts.size());
  INGOT_GPU_CALL(launch_update_stats)
  ({}, {sums.data(), first_chunk.data(), first_block.empty() ? nullptr : first_block.data(),
        static_cast<int64_t>(counts.size()), counts.data(), stats.data()});
  std::vector<UpdateStat> result;
  for (const GpuUpdateStat& s : stats) result.push_back({s.update_rms, s.weight_rms});
  return result;
}

const UpdateKernels& gpu_update_kernels() {
  static const UpdateKernels kernels{"cuda",    gpu_refuses, gpu_sum_squares, gpu_clip_factor,
                                     gpu_adamw, gpu_muon,    gpu_qk_clip,     gpu_balance};
  return kernels;
}

}  // namespace ingot
