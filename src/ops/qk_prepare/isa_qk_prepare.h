// The kernels of isa_qk_prepare.cpp, over ranges of rows. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"
#include "ops/sequence/rotary.h"

namespace ingot {

struct QkPrepareRows {
  int64_t heads, kv_heads, width;
  bool norm, joint;
  float eps, weight_offset;
  RotaryTable rotary;
  const int32_t* positions;
  const void* x;  ///< packed rows; backward reads them only with the norm
  DType x_type;
  const float* weights[2];  ///< of q and k; nullptr: none
  float* rstd;              ///< [rows, H + G] or joint [rows, 2], with the norm
  void* y;                  ///< forward: result
  const void* d_y;          ///< backward: cotangent
  DType y_type;             ///< of y and d_y
  void* d_x;                ///< of x_type; nullptr: not wanted
  bool accumulate;          ///< into d_x
};

INGOT_ISA_KERNEL(void, qk_prepare_forward, (const QkPrepareRows& args, int64_t begin, int64_t end));
/// Adds the gradients of q's weight, then of k's, to d_weights, unless it is nullptr.
INGOT_ISA_KERNEL(void, qk_prepare_backward,
                 (const QkPrepareRows& args, int64_t begin, int64_t end, float* d_weights));

}  // namespace ingot
