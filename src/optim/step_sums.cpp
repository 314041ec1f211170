// See step_sums.h.
#include "optim/step_sums.h"

#include <algorithm>

#include "base/error.h"
#include "device/gpu/emulator.h"
#include "device/gpu/launch_through.h"
#include "optim/gpu_step_sums.h"

namespace ingot {
namespace {

KernelRange read(const Tensor& t) {
  return {t.data, t.bytes(), false};
}
KernelRange sums_of(void* sums, int64_t count) {
  return {sums, count * static_cast<int64_t>(sizeof(double)), true};
}

/// A device that takes host code has these kernels as such, or emulates them.
bool are_kernels(const Device& device) {
  return !device.runs_host_kernels() || emulation().on;
}

}  // namespace

void add_logprobs(const Tensor& logprob_T, const Tensor& targets_T, void* sum) {
  Device& device = device_of(logprob_T.device);
  launch_through(device, {{read(logprob_T), read(targets_T), sums_of(sum, 1)},
                          [rows = logprob_T.numel(), gpu = are_kernels(device)](std::span<void* const> at) {
                            const auto* logprob = static_cast<const float*>(at[0]);
                            const auto* targets = static_cast<const int32_t*>(at[1]);
                            auto* to = static_cast<double*>(at[2]);
                            if (gpu)
                              return INGOT_GPU_CALL(launch_add_logprobs)({}, {logprob, targets, rows, to});
                            for (int64_t t = 0; t < rows; ++t)
                              if (targets[t] >= 0) *to += logprob[t];
                          }});
}

void add_values(const Tensor& values, void* sums, bool largest) {
  INGOT_CHECK(values.dtype() == DType::f32, "sums of {}", name_of(values.dtype()));
  Device& device = device_of(values.device);
  launch_through(device,
                 {{read(values), sums_of(sums, values.numel())},
                  [count = values.numel(), largest, gpu = are_kernels(device)](std::span<void* const> at) {
                    const auto* from = static_cast<const float*>(at[0]);
                    auto* to = static_cast<double*>(at[1]);
                    if (gpu) return INGOT_GPU_CALL(launch_add_values)({}, {from, count, largest, to});
                    for (int64_t i = 0; i < count; ++i)
                      to[i] = largest ? std::max(to[i], double{from[i]}) : to[i] + double{from[i]};
                  }});
}

}  // namespace ingot
