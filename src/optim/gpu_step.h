// Parts of an update by the kernels of GPUs (gpu_optim.h), emulated, for host code that is a kernel of the
// simulated device: addresses are those of the host.
#pragma once
#include <span>
#include <vector>

#include "optim/kernels.h"
#include "optim/param.h"

namespace ingot {

/// Whether the kernels take weights, gradient and copy of all of them.
bool gpu_optim_takes(std::span<const ParamView> params);
/// GradNorm::sum_squares, by the emulated kernels.
std::vector<double> gpu_sum_squares(std::span<const ParamView> params);

/// clip_factor() of the gradient's norm.
struct ClipFactor {
  bool is_finite;
  double factor;
};
ClipFactor gpu_clip_factor(std::span<const double> sum_squares, double grad_scale, double max_norm,
                           double loss);
/// The chunks of chunks_of(counts), updated by the emulated kernels.
std::vector<UpdateStat> gpu_adamw(std::span<const AdamWChunk> parts, const std::vector<int64_t>& counts);

}  // namespace ingot
