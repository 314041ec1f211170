// The loops that peak.cpp times. Internal to this folder.
#pragma once
#include <cstdint>

#include "device/simd/isa.h"

namespace ingot {

/// Runs `steps` steps of independent fused multiply-adds; returns the flops of a step. `sink` keeps the
/// result.
INGOT_ISA_KERNEL(int64_t, peak_fma, (int64_t steps, float* sink));
/// The same with dot products of bf16 pairs where the set has them, else with fused multiply-adds.
INGOT_ISA_KERNEL(int64_t, peak_dot, (int64_t steps, float* sink));
/// Reads `bytes` (a multiple of 1024) once.
INGOT_ISA_KERNEL(void, peak_read, (const void* data, int64_t bytes, float* sink));
/// Writes `bytes` (a multiple of 1024) once, every float value[0]: through the caches, or past them where the
/// set has such stores.
INGOT_ISA_KERNEL(void, peak_write, (void* data, int64_t bytes, const float* value));
INGOT_ISA_KERNEL(void, peak_stream, (void* data, int64_t bytes, const float* value));
/// The vectors of a loop: the widest of the instruction set, or of 16 bytes. In caches wide ones are faster;
/// from memory narrow ones are on some processors (Zen 4, by up to a fifth), since fewer lines are asked for
/// before the prefetcher brings them.
enum class PeakVectors { wide, narrow };

/// Copies `bytes` (a multiple of 1024); the two do not overlap.
INGOT_ISA_KERNEL(void, peak_copy, (void* to, const void* from, int64_t bytes, PeakVectors vectors));
/// Writes x + y, or x + factor[0] y, of floats in `bytes` (a multiple of 1024) each; none overlap.
INGOT_ISA_KERNEL(void, peak_add,
                 (void* to, const void* x, const void* y, int64_t bytes, PeakVectors vectors));
INGOT_ISA_KERNEL(void, peak_triad,
                 (void* to, const void* x, const void* y, int64_t bytes, PeakVectors vectors,
                  const float* factor));

}  // namespace ingot
