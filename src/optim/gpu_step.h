// The end of a step by the kernels of GPUs (gpu_optim.h): from tensors to launches, which go to the thread's
// launcher. Where there is none they are emulated, for host code that is a kernel of the simulated device.
#pragma once
#include "device/gpu/workspace.h"
#include "optim/kernels.h"
#include "optim/update_kernels.h"

namespace ingot {

/// f32 without compute copies.
const UpdateKernels& gpu_update_kernels();

// Their parts.
std::vector<UpdateStat> gpu_muon(const MuonUpdate& update);
void gpu_qk_clip(const QkClipConfig& config, std::span<const QkClipTask> layers, double* clipped);
void gpu_balance(std::span<const BalanceTask> layers);
/// GpuUpdateStats, of sums of the device; no `first_block`: each tensor is one block of weights.
std::vector<UpdateStat> gpu_update_stats(GpuWorkspace& memory, const UpdateSums* sums,
                                         std::span<const int64_t> first_chunk,
                                         std::span<const int64_t> first_block,
                                         std::span<const int64_t> counts);

}  // namespace ingot
