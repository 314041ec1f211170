// See step_sums.h.
#include "optim/step_sums.h"

#include "base/error.h"
#include "device/gpu/emulator.h"
#include "device/gpu/launch_through.h"
#include "optim/gpu_step_sums.h"
#include "tensor/convert.h"

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
  INGOT_CHECK(values.dtype() == DType::f32 || values.dtype() == DType::i32, "sums of {}",
              name_of(values.dtype()));
  Device& device = device_of(values.device);
  launch_through(
      device,
      {{read(values), sums_of(sums, values.numel())},
       [meta = values.meta, largest, gpu = are_kernels(device)](std::span<void* const> at) {
         auto* to = static_cast<double*>(at[1]);
         const Tensor from(at[0], meta);
         if (gpu)
           return INGOT_GPU_CALL(launch_add_values)({}, {at[0], from.dtype(), from.numel(), largest, to});
         for (const double v : to_doubles(from)) *to = largest ? std::max(*to, v) : *to + v, ++to;
       }});
}

}  // namespace ingot
