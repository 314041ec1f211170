// The kernels of isa_head.cpp, over ranges of rows of logits. All row pointers count from the same first row
// as the logits. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"
#include "device/simd/soft_cap.h"

namespace ingot {

/// Forward; entropy, teacher and kl may be nullptr. Rows whose target is negative get zeros, and their best.
struct HeadStatistics {
  int64_t vocabulary;
  const float* logits;  ///< [rows, V]
  int64_t stride;       ///< from row to row of the logits
  const int32_t* targets;
  const float* teacher;  ///< [rows, V]
  float *logprob, *lse, *entropy, *kl;
  int32_t* best;
};

/// Backward: cotangents of the statistics to those of the logits. Absent cotangents (nullptr) are zero.
struct HeadCotangents {
  int64_t vocabulary;
  SoftCapFactors cap;
  float scale;          ///< of the logits
  const float* logits;  ///< capped and scaled ones
  int64_t stride;       ///< from row to row of the logits
  const int32_t* targets;
  const float* teacher;
  const float *lse, *entropy;
  const float *d_logprob, *d_lse, *d_entropy, *d_kl;
  double z_scale;  ///< without d_lse: it is z_scale * lse * d_logprob
  void* d_logits;  ///< [rows, V] of d_type, f32 or bf16; a row that begins where its logits do replaces them
  DType d_type;
  int64_t d_stride;  ///< from row to row, in elements of d_type
};

/// Caps n logits in place.
INGOT_ISA_KERNEL(void, head_soft_cap, (const SoftCapFactors& cap, float* logits, int64_t n));
/// Multiplies n logits in place.
INGOT_ISA_KERNEL(void, head_scale, (float scale, float* logits, int64_t n));
/// weights = exp(x - max x) of x = scale * logits, n >= 1; returns log sum exp x, with scale 1 in the bits of
/// head_statistics.
INGOT_ISA_KERNEL(float, head_softmax, (float* weights, const float* logits, float scale, int64_t n));
INGOT_ISA_KERNEL(void, head_statistics, (const HeadStatistics& args, int64_t begin, int64_t end));
INGOT_ISA_KERNEL(void, head_d_logits, (const HeadCotangents& args, int64_t begin, int64_t end));

}  // namespace ingot
