// The end of a step by kernels of a device: gradient norm, clip factor, updates, QK-clip and the balance of
// routers. What runs on a device is chosen here and nowhere else, as ops/gpu_registry.h lists the kernels of
// ops. They have the CPU's bits, but for Muon whose products are in bf16 (newton_schulz.h). Where a device
// has none that take a part of it, the CPU's code runs there, as host code (device/host_kernel.h).
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "optim/adamw.h"
#include "optim/device_step.h"
#include "optim/kernels.h"
#include "optim/param.h"
#include "optim/work.h"

namespace ingot {

struct MuonUpdate;    // optim/muon.h
struct QkClipConfig;  // optim/qk_clip.h
struct QkClipLayer;

/// One layer of QK-clip.
struct QkClipTask {
  const QkClipLayer* layer;
  const double* max_logit;  ///< [heads], on the device
};

/// What the choices of a step change of one layer, unless there were none.
struct BalanceTask {
  const double* counts;  ///< [experts], whole numbers; on the device
  int64_t experts;
  float* load;                ///< load_fractions(); nullptr: not wanted
  const BalanceArgs* biases;  ///< balance_experts(), of these counts, if StepScalars::balances; nullptr: no
};

/// The kernels of one device. They are asked for and not waited for: weights, gradients, state, biases, loads
/// and what a step says, measures and decides are at addresses of the device; lists of these are the host's.
/// They are for a thread whose launches go to the device, or for host code that is a kernel of it
/// (device/gpu/launch_through.h).
struct UpdateKernels {
  const char* name;  ///< "cuda"
  /// Why they do not take a parameter with its state; nullptr: they do.
  const char* (*refuse)(const ParamView& param, std::span<const StoredValues> state);
  /// GradNorm::sum_squares, to `sums`.
  void (*sum_squares)(std::span<const ParamView> params, double* sums, KeptLists* lists);
  /// clip_of() of the sums and the loss, which the scalars may know already.
  void (*decide)(std::span<const ParamView> params, const double* sum_squares, const double* loss,
                 double max_norm, const StepScalars* scalars, UpdateDecision* decision);
  /// adamw_step(); `lr` is that of the step's rates, by AdamWTensor::index.
  void (*adamw)(std::span<const AdamWTensor> tensors, const AdamWConfig& config, const DeviceStep& step);
  /// Muon::step().
  void (*muon)(const MuonUpdate& update, const DeviceStep& step);
  /// qk_clip(), whose parameters they take; adds how many heads were clipped to `clipped`.
  void (*qk_clip)(const QkClipConfig& config, std::span<const QkClipTask> layers, double* clipped,
                  const DeviceStep& step);
  void (*balance)(std::span<const BalanceTask> layers, const DeviceStep& step);
};

/// Whether the device has any that run now: those of a GPU have proven themselves (ops/gpu_proof.h).
bool has_update_kernels(DeviceKind device);
/// Why its kernels do not make Muon's products in bf16; nullptr: they do, if they make its update at all.
const char* refuse_bf16_products(DeviceKind device);

/// The first of the device's kernels that `refuse` has nothing against; nullptr: the CPU's run there. Error,
/// which names the part of the step, where there are none and the policy is strict (tape/op.h) on a device
/// that does not own the CPU's kernels.
const UpdateKernels* select_update_kernels(DeviceKind device, const std::string& part,
                                           const std::function<const char*(const UpdateKernels&)>& refuse);
/// Of kernels that take these parameters, as far as weights and gradients go.
const UpdateKernels* select_update_kernels(DeviceKind device, const std::string& part,
                                           std::span<const ParamView> params);

}  // namespace ingot
