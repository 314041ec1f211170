// See gpu_step.h.
#include "optim/gpu_step.h"

#include <algorithm>

#include "optim/gpu_optim.h"
#include "optim/work.h"

namespace ingot {
namespace {

/// GpuTensors::first of chunks_of(counts).
std::vector<int64_t> first_chunks(const std::vector<int64_t>& counts) {
  std::vector<int64_t> first{0};
  for (const int64_t n : counts) first.push_back(first.back() + (n + kOptimChunk - 1) / kOptimChunk);
  return first;
}

}  // namespace

bool gpu_optim_takes(std::span<const ParamView> params) {
  return std::all_of(params.begin(), params.end(), [](const ParamView& p) {
    return p.master.storage == ValueStorage::f32 && p.grad.storage == ValueStorage::f32 &&
           p.compute == nullptr;
  });
}

std::vector<double> gpu_sum_squares(std::span<const ParamView> params) {
  std::vector<int64_t> counts;
  for (const ParamView& p : params) counts.push_back(p.numel());
  std::vector<GpuSumSquares::Part> parts;
  for (const Chunk& c : chunks_of(counts))
    parts.push_back(
        {static_cast<const float*>(params[static_cast<size_t>(c.tensor)].grad.data) + c.begin, c.count});
  const std::vector<int64_t> first = first_chunks(counts);
  std::vector<double> partial(parts.size()), sums(params.size());
  INGOT_GPU_CALL(launch_sum_squares)
  ({}, {parts.data(),
        static_cast<int64_t>(parts.size()),
        partial.data(),
        {first.data(), static_cast<int64_t>(params.size())},
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

std::vector<UpdateStat> gpu_adamw(std::span<const AdamWChunk> parts, const std::vector<int64_t>& counts) {
  const std::vector<int64_t> first = first_chunks(counts);
  std::vector<UpdateSums> sums(parts.size());
  std::vector<GpuUpdateStat> stats(counts.size());
  INGOT_GPU_CALL(launch_adamw)
  ({}, {parts.data(),
        static_cast<int64_t>(parts.size()),
        sums.data(),
        {first.data(), static_cast<int64_t>(counts.size())},
        counts.data(),
        stats.data()});
  std::vector<UpdateStat> result;
  for (const GpuUpdateStat& s : stats) result.push_back({s.update_rms, s.weight_rms});
  return result;
}

}  // namespace ingot
