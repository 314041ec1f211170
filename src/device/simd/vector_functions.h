// The functions of vmath.h and reduce.h over whole arrays, for the active instruction set: y[i] = f(x[i]).
#pragma once
#include <cstdint>

#include "device/simd/isa.h"

namespace ingot {

/// y and x may be the same array.
INGOT_ISA_KERNEL(void, array_exp, (float* y, const float* x, int64_t n));
INGOT_ISA_KERNEL(void, array_log, (float* y, const float* x, int64_t n));
INGOT_ISA_KERNEL(void, array_sigmoid, (float* y, const float* x, int64_t n));
INGOT_ISA_KERNEL(void, array_tanh, (float* y, const float* x, int64_t n));
INGOT_ISA_KERNEL(void, array_erf, (float* y, const float* x, int64_t n));
INGOT_ISA_KERNEL(float, array_sum, (const float* x, int64_t n));
INGOT_ISA_KERNEL(float, array_dot, (const float* a, const float* b, int64_t n));
INGOT_ISA_KERNEL(float, array_max, (const float* x, int64_t n));

}  // namespace ingot
