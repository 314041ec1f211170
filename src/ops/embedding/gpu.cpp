// embedding's kernel for GPUs: from tensors to the launches of embedding.cu.
#include "ops/common.h"
#include "ops/embedding/embedding.h"
#include "ops/embedding/gpu_embedding.h"
#include "ops/gpu_registry.h"

namespace ingot {
namespace {

const char* refuse(const OpCall& call) {
  return refuse_weight_types(call, 1);
}

void forward(const OpCall& call) {
  const Tensor &ids = call.in[0], &table = call.in[1], &y = call.out[0];
  INGOT_GPU_CALL(launch_embedding_forward)
  ({}, {device_address<const int32_t>(ids), ids.numel(), table.dim(0), table.dim(1), table.data,
        table.dtype(), table.rounded(), call.attr<EmbeddingAttr>().absent, y.data, y.dtype()});
}

void backward_weight(const OpCall& call) {
  const Tensor &ids = call.in[0], &d_y = call.d_out[0];
  const GradSlot& d_table = call.d_in[1];
  INGOT_GPU_CALL(launch_embedding_gradient)
  ({}, {device_address<const int32_t>(ids), ids.numel(), d_table.tensor.dim(0), d_table.tensor.dim(1),
        d_y.data, d_y.dtype(), device_address<float>(d_table.tensor), d_table.accumulate,
        static_cast<int32_t*>(call.scratch)});
}

constexpr GpuLaunches kLaunches{refuse, forward, nullptr, backward_weight, {.rounded = slot_bit(1)}};

}  // namespace

Kernel embedding_gpu() {
  return emulated_kernel<embedding_op, kLaunches>();
}

}  // namespace ingot
