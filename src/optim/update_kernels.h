// The end of a step by kernels of a device: gradient norm, clip factor and updates. What runs on a device is
// chosen here and nowhere else, as ops/gpu_registry.h lists the kernels of ops. They are exact: they have the
// CPU's bits. Where a device has none that take a part of it, the CPU's code runs there, as host code
// (device/host_kernel.h).
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "optim/clip.h"
#include "optim/kernels.h"
#include "optim/param.h"
#include "optim/work.h"

namespace ingot {

/// The kernels of one device. Their callers are kernels of the device themselves, whose addresses they give.
struct UpdateKernels {
  const char* name;  ///< "cuda"
  /// Why they do not take a parameter with its state; nullptr: they do.
  const char* (*refuse)(const ParamView& param, std::span<const StoredValues> state);
  /// GradNorm::sum_squares.
  std::vector<double> (*sum_squares)(std::span<const ParamView> params);
  /// clip_of().
  ClipFactor (*clip_factor)(std::span<const double> sum_squares, double grad_scale, double max_norm,
                            double loss);
  /// adamw_chunk() of each chunk, and combine().
  std::vector<UpdateStat> (*adamw)(std::span<const AdamWChunk> parts, const TensorChunks& chunks);
};

/// The first of the device's kernels that `refuse` has nothing against; nullptr: the CPU's run there.
const UpdateKernels* select_update_kernels(DeviceKind device,
                                           const std::function<const char*(const UpdateKernels&)>& refuse);

}  // namespace ingot
