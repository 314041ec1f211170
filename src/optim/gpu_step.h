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
void gpu_muon(const MuonUpdate& update, const DeviceStep& step);
/// The most that it borrows for these parameters, in f32 (bf16 takes less).
int64_t gpu_muon_scratch_bytes(std::span<const ParamView> matrices);
void gpu_qk_clip(const QkClipConfig& config, std::span<const QkClipTask> layers, double* clipped,
                 const DeviceStep& step);
void gpu_balance(std::span<const BalanceTask> layers, const DeviceStep& step);

/// The tensors of GpuUpdateStats: `first_chunk` of each block of weights, `first_block` of each tensor
/// (empty: each tensor is one block), elements of each tensor, and its place among the step's.
struct GpuStatsOf {
  std::span<const int64_t> first_chunk, first_block, counts, indices;
};
/// Of sums of the device, to `stats`.
void gpu_update_stats(GpuWorkspace& memory, const UpdateSums* sums, const GpuStatsOf& of, UpdateStat* stats);

}  // namespace ingot
