// The kernels of isa_mla.cpp, over ranges of rows. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"
#include "ops/sequence/rotary.h"

namespace ingot {

struct MlaLatentRows {
  int64_t ranks[2];  ///< Q, C
  int64_t rope;
  float eps;
  RotaryTable rotary;
  const int32_t* positions;
  const void* x;  ///< [rows, Q + C + P]
  DType x_type;
  const float* weights[2];
  float* rstd;         ///< [rows, 2]
  void* y[3];          ///< q_latent, c, k_rope
  const void* d_y[3];  ///< nullptr: no cotangent
  DType y_type;
  void* d_x;        ///< nullptr: not wanted
  bool accumulate;  ///< into d_x
};

struct MlaPackRows {
  int64_t heads, nope, rope, value;
  bool queries_only;
  RotaryTable rotary;
  const int32_t* positions;
  DType type;  ///< of everything
  const void *q, *kv, *k_rope;
  void* y;
  const void* d_y;
  void *d_q, *d_kv, *d_k_rope;  ///< nullptr: not wanted
  bool accumulate_q, accumulate_kv, accumulate_k_rope;
};

INGOT_ISA_KERNEL(void, mla_latents_forward, (const MlaLatentRows& args, int64_t begin, int64_t end));
/// Adds the norm weights' gradients of these rows to d_weights [Q + C], unless it is nullptr.
INGOT_ISA_KERNEL(void, mla_latents_backward,
                 (const MlaLatentRows& args, int64_t begin, int64_t end, float* d_weights));
INGOT_ISA_KERNEL(void, mla_pack_forward, (const MlaPackRows& args, int64_t begin, int64_t end));
INGOT_ISA_KERNEL(void, mla_pack_backward, (const MlaPackRows& args, int64_t begin, int64_t end));

}  // namespace ingot
