// The kernels of quantize.cu. Plain.
#pragma once
#include "device/gpu/launch.h"
#include "ops/quantize/isa_quantize.h"

namespace ingot {

INGOT_GPU_KERNEL(void, launch_quantize, (GpuStream stream, const QuantizeRows& args));
INGOT_GPU_KERNEL(void, launch_dequantize, (GpuStream stream, const DequantizeRows& args));

}  // namespace ingot
