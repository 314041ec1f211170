// The kernels of isa_add_norm.cpp, over ranges of rows. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"
#include "ops/add_norm/merge_kind.h"

namespace ingot {

struct AddNormRows {
  int64_t width;
  MergeKind merge;
  bool layer;  ///< layer norm, else rms
  float eps, weight_offset;
  const float* x;
  const void* y;
  DType y_type;
  const float *stream_scale, *stream_bias, *y_scale, *y_bias, *weight, *bias;  ///< absent: nullptr
  float* s;            ///< forward: written (merge none: nullptr); backward: read
  void* h;             ///< forward only
  DType h_type;        ///< of h and d_h
  float *rstd, *mean;  ///< mean: layer norm only
  const float* d_s;    ///< nullptr: zero
  const void* d_h;     ///< nullptr: zero
  float* d_x;          ///< nullptr: not wanted
  void* d_y;           ///< of y_type; nullptr: not wanted
  bool accumulate_x, accumulate_y;
  float* terms;  ///< backward on a GPU, with scales: [rows, 2], what its passes tell each other
};

/// Partial sums of a chunk of rows, [D] each; the kernel adds.
struct AddNormSums {
  float* weight;        ///< of d_h xhat
  float* bias;          ///< of d_h
  float* stream;        ///< of the gradient of s
  float* stream_scale;  ///< of it times (x + b_x)
  float* y_scale;       ///< of it times (y + b_y)
};

INGOT_ISA_KERNEL(void, add_norm_forward, (const AddNormRows& args, int64_t begin, int64_t end));
INGOT_ISA_KERNEL(void, add_norm_backward,
                 (const AddNormRows& args, int64_t begin, int64_t end, const AddNormSums& sums));

}  // namespace ingot
