// The kernels of isa_activation.cpp, over ranges of rows. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/activation.h"
#include "device/simd/isa.h"

namespace ingot {

struct ActivationRows {
  ActivationFunction function;
  SoftCapFactors cap;  ///< of soft_cap
  bool gated;
  int64_t width;  ///< of y; x is twice as wide when gated
  const void* x;
  DType x_type;
  const float* p;  ///< nullptr: 1
  void* y;         ///< forward only
  DType y_type;    ///< of y and d_y
  const void* d_y;
  void* d_x;   ///< of x_type; nullptr: not wanted
  float* d_p;  ///< nullptr: not wanted
  bool accumulate_x, accumulate_p;
};

INGOT_ISA_KERNEL(void, activation_forward, (const ActivationRows& args, int64_t begin, int64_t end));
INGOT_ISA_KERNEL(void, activation_backward, (const ActivationRows& args, int64_t begin, int64_t end));

}  // namespace ingot
