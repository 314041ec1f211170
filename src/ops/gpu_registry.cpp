// See gpu_registry.h. An op with kernels for GPUs is one line in the list below.
#include "ops/gpu_registry.h"

#include <algorithm>

#include "device/sim/sim_device.h"
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
  op(route)               \
  op(sequence_balance)    \
  op(shard_index)         \
  op(shard_rows)          \
  op(unpermute)
// clang-format on

#define INGOT_DECLARE_KERNEL(name) Kernel name##_gpu();
INGOT_GPU_OPS(INGOT_DECLARE_KERNEL)

std::vector<Kernel> gpu_kernels(std::string_view op) {
#define INGOT_KERNEL_OF(name) \
  if (op == #name) return {name##_gpu()};
  INGOT_GPU_OPS(INGOT_KERNEL_OF)
  return {};
}

std::vector<Kernel> with_gpu_kernels(std::string_view op, std::vector<Kernel> kernels) {
  const std::vector<Kernel> gpu = gpu_kernels(op);
  kernels.insert(kernels.end() - 1, gpu.begin(), gpu.end());
  return kernels;
}

void run_emulated(const Op& op, const GpuLaunches& launches, const OpCall& call, Direction direction) {
  const auto is_away = [](const Tensor& t) { return t.defined() && t.device == DeviceKind::sim; };
  const auto any = [&](std::span<const Tensor> list) {
    return std::any_of(list.begin(), list.end(), is_away);
  };
  const Kernel kernel{"cuda", launches.refuse, launches.forward, launches.backward_input,
                      launches.backward_weight};
  if (any(call.in) || any(call.out) || any(call.d_out)) {
    const Node node{&op, *static_cast<const AttrBox*>(call.attr_data), {}, {}, -1};
    const int64_t scratch = op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0;
    return launch_call(sim_device(), kernel, node, call, direction, scratch);
  }
  (direction == Direction::forward           ? kernel.forward
   : direction == Direction::backward_weight ? kernel.backward_weight
                                             : kernel.backward_input)(call);
}

}  // namespace ingot
