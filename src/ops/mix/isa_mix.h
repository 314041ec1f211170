// The kernels of isa_mix.cpp, over ranges of rows. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"

namespace ingot {

struct MixRows {
  int64_t width, first;
  const void *a, *b;  ///< b: nullptr adds nothing
  DType a_type, b_type;
  const float *alpha, *beta;  ///< nullptr: factor, and 1
  float factor;
  void* y;       ///< forward only
  DType y_type;  ///< of y and d_y
  const void* d_y;
  void *d_a, *d_b;  ///< of the inputs' types; nullptr: not wanted
  bool accumulate_a, accumulate_b;
};

INGOT_ISA_KERNEL(void, mix_forward, (const MixRows& args, int64_t begin, int64_t end));
INGOT_ISA_KERNEL(void, mix_backward, (const MixRows& args, int64_t begin, int64_t end));
/// sums[0] = sum over the rows of a d_y, sums[1] of b d_y, over the mixed columns; 0 where a or b is nullptr.
INGOT_ISA_KERNEL(void, mix_scalar_sums, (const MixRows& args, int64_t begin, int64_t end, float* sums));

}  // namespace ingot
