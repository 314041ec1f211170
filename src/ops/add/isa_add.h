// The kernels of isa_add.cpp, over ranges of rows or columns. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"

namespace ingot {

struct AddRows {
  int64_t rows, width;
  const void *a, *b;
  DType a_type, b_type;
  const float* gate;  ///< nullptr: 1
  void* y;            ///< forward only
  DType y_type;       ///< of y and d_y
  const void* d_y;
  void* d_b;  ///< of b_type
  float* d_gate;
  bool accumulate;  ///< into d_b, d_gate
};

INGOT_ISA_KERNEL(void, add_forward, (const AddRows& args, int64_t begin, int64_t end));
/// d_b (+)= gate * d_y for a range of rows.
INGOT_ISA_KERNEL(void, add_gated_gradient, (const AddRows& args, int64_t begin, int64_t end));
/// d_gate (+)= sum over all rows of b * d_y, in chunks of `chunk` rows added in order, for a range of
/// columns.
INGOT_ISA_KERNEL(void, add_gate_gradient, (const AddRows& args, int64_t chunk, int64_t begin, int64_t end));

}  // namespace ingot
