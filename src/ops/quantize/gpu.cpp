// The kernels of quantize and dequantize for GPUs: from tensors to the launches of quantize.cu.
#include "ops/gpu_registry.h"
#include "ops/quantize/call.h"
#include "ops/quantize/gpu_quantize.h"
#include "ops/quantize/quantize.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  INGOT_GPU_CALL(launch_quantize)({}, quantize_call(call));
}

void forward_back(const OpCall& call) {
  INGOT_GPU_CALL(launch_dequantize)({}, dequantize_call(call));
}

constexpr GpuLaunches kQuantize{refuse_quantize, forward};
constexpr GpuLaunches kDequantize{refuse_quantize, forward_back};

}  // namespace

Kernel quantize_gpu() {
  return emulated_kernel<quantize_op, kQuantize>();
}
Kernel dequantize_gpu() {
  return emulated_kernel<dequantize_op, kDequantize>();
}

}  // namespace ingot
