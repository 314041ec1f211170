// The end of a step by the kernels of GPUs (gpu_optim.h): from tensors to launches. Here they are emulated,
// for host code that is a kernel of the simulated device: addresses are those of the host.
#pragma once
#include "optim/update_kernels.h"

namespace ingot {

/// f32 without compute copies.
const UpdateKernels& gpu_update_kernels();

// Their parts.
std::vector<UpdateStat> gpu_muon(const MuonUpdate& update);
void gpu_qk_clip(const QkClipConfig& config, std::span<const QkClipTask> layers, double* clipped);
void gpu_balance(std::span<const BalanceTask> layers);
/// GpuUpdateStats; no `first_block`: each tensor is one block of weights.
std::vector<UpdateStat> gpu_update_stats(std::span<const UpdateSums> sums,
                                         std::span<const int64_t> first_chunk,
                                         std::span<const int64_t> first_block,
                                         std::span<const int64_t> counts);

}  // namespace ingot
