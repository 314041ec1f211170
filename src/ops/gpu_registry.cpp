// See gpu_registry.h. An op with kernels for GPUs is one line in the list below.
#include "ops/gpu_registry.h"

#include <algorithm>

#include "device/sim/sim_device.h"
#include "ops/gpu_call.h"
#include "ops/gpu_proof.h"
#include "tape/device_call.h"

namespace ingot {

// clang-format off
#define INGOT_GPU_OPS(op) \
  op(activation)          \
  op(add)                 \
  op(add_norm)            \
  op(assign)              \
  op(attention)           \
  op(capacity)            \
  op(cca)                 \
  op(dequantize)          \
  op(embedding)           \
  op(group_by_rank)       \
  op(grouped_linear)      \
  op(head)                \
  op(linear)              \
  op(low_rank)            \
  op(mix)                 \
  op(mla_latents)         \
  op(mla_pack)            \
  op(permute)             \
  op(qk_prepare)          \
  op(quantize)            \
  op(route)               \
  op(sequence_balance)    \
  op(shard_index)         \
  op(shard_rows)          \
  op(unpermute)
// clang-format on

/// Those that have kernels on tensor cores as well, and pairs of ops.
#define INGOT_MMA_OPS(op) \
  op(attention) op(grouped_linear) op(head) op(linear) op(linear_activation) op(low_rank)

#define INGOT_DECLARE_KERNEL(name) Kernel name##_gpu();
INGOT_GPU_OPS(INGOT_DECLARE_KERNEL)
#define INGOT_DECLARE_MMA_KERNEL(name) Kernel name##_mma_gpu();
INGOT_MMA_OPS(INGOT_DECLARE_MMA_KERNEL)

namespace {

bool lies_on(const OpCall& call, DeviceKind device) {
  const auto is_there = [device](const Tensor& t) { return t.defined() && t.device == device; };
  const auto any = [&](std::span<const Tensor> list) {
    return std::any_of(list.begin(), list.end(), is_there);
  };
  return any(call.in) || any(call.out) || any(call.d_out);
}

void add_for_each_device(std::vector<Kernel>& kernels, const Kernel& emulated) {
  Kernel cuda = emulated;
  cuda.device = DeviceKind::cuda, cuda.is_on = nullptr;
  kernels.insert(kernels.end(), {emulated, cuda});
}

}  // namespace

std::vector<Kernel> gpu_kernels(std::string_view op) {
  std::vector<Kernel> kernels;
#define INGOT_MMA_KERNEL_OF(name) \
  if (op == #name) add_for_each_device(kernels, name##_mma_gpu());
  INGOT_MMA_OPS(INGOT_MMA_KERNEL_OF)
#define INGOT_KERNEL_OF(name) \
  if (op == #name) add_for_each_device(kernels, name##_gpu());
  INGOT_GPU_OPS(INGOT_KERNEL_OF)
  return kernels;
}

std::vector<std::string> gpu_kernel_names() {
#define INGOT_NAME_OF(name) #name,
#define INGOT_MMA_NAME_OF(name) #name "_mma",
  return {INGOT_GPU_OPS(INGOT_NAME_OF) INGOT_MMA_OPS(INGOT_MMA_NAME_OF) kUpdateOnGpu, kUpdateOnTensorCores};
}

std::string gpu_kernel_name(std::string_view op, bool exact) {
  return std::string(op) + (exact ? "" : "_mma");
}

std::vector<Kernel> with_gpu_kernels(std::string_view op, std::vector<Kernel> kernels) {
  const std::vector<Kernel> gpu = gpu_kernels(op);
  kernels.insert(kernels.end() - 1, gpu.begin(), gpu.end());
  return kernels;
}

const char* refuse_on_gpu(const Op& op, const GpuLaunches& launches, const OpCall& call) {
  if (lies_on(call, DeviceKind::cuda)) {
    const char* const reason = launches.refuse(call);
    return reason != nullptr
               ? reason
               : refuse_unproven(gpu_kernel_name(launches.pair ? launches.pair : op.name, launches.exact));
  }
  const Emulation now = emulation();
  return !now.on                       ? "emulated kernels run where INGOT_EMULATE is set"
         : !launches.exact && !now.mma ? "tensor cores are emulated where INGOT_EMULATE says mma"
                                       : launches.refuse(call);
}

void run_on_gpu(const Op& op, const GpuLaunches& launches, const OpCall& call, Direction direction) {
  void (*const function)(const OpCall&) = direction == Direction::forward           ? launches.forward
                                          : direction == Direction::backward_weight ? launches.backward_weight
                                                                                    : launches.backward_input;
  if (lies_on(call, DeviceKind::cuda)) return launch_on(cuda_device(), function, call, direction);
  if (!lies_on(call, DeviceKind::sim)) return function(call);
  const Kernel kernel{"cuda", launches.refuse, launches.forward, launches.backward_input,
                      launches.backward_weight};
  const Node node{&op, *static_cast<const AttrBox*>(call.attr_data), {}, {}, -1};
  const int64_t scratch = op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0;
  launch_call(sim_device(), kernel, node, call, direction, scratch);
}

}  // namespace ingot
