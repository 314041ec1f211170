// The kernels of embedding.cu. Plain.
#pragma once
#include "base/dtype.h"
#include "device/gpu/launch.h"

namespace ingot {

/// y[t] = table[id[t]]; 0 for id -1 where ids may be absent; NaN for any other id outside the table,
/// which stops a run before its update.
struct GpuEmbedding {
  const int32_t* id;
  int64_t tokens, vocabulary, width;
  const void* table;
  DType table_type;
  bool rounded;  ///< the table is f32, read as its rounding to bf16
  bool absent;   ///< -1 is legal
  void* y;
  DType y_type;
};
INGOT_GPU_KERNEL(void, launch_embedding_forward, (GpuStream stream, const GpuEmbedding& args));

/// d_table[v] (+)= the rows of d_y whose id is v, in the order of the tokens.
struct GpuEmbeddingGradient {
  const int32_t* id;
  int64_t tokens, vocabulary, width;
  const void* d_y;
  DType y_type;
  float* d_table;
  bool accumulate;
  int32_t* order;  ///< scratch, [tokens]: the tokens sorted by id
};
INGOT_GPU_KERNEL(void, launch_embedding_gradient, (GpuStream stream, const GpuEmbeddingGradient& args));

}  // namespace ingot
