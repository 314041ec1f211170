// The loops that peak.cpp times. Internal to device/cpu.
#pragma once
#include <cstdint>

#include "device/cpu/isa.h"

namespace ingot {

/// Runs `steps` rounds of independent fused multiply-adds; returns how many flops a round has. `sink` keeps
/// the result.
INGOT_ISA_KERNEL(int64_t, peak_fma, (int64_t steps, float* sink));
/// The same with dot products of bf16 pairs where the set has them, else with fused multiply-adds.
INGOT_ISA_KERNEL(int64_t, peak_dot, (int64_t steps, float* sink));
/// Reads `bytes` (a multiple of 1024) once.
INGOT_ISA_KERNEL(void, peak_read, (const void* data, int64_t bytes, float* sink));

}  // namespace ingot
