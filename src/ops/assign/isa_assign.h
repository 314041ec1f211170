// The kernels of isa_assign.cpp, over ranges of rows. Matrices are [rows, experts], f32. Plain: compiled for
// each instruction set.
#pragma once
#include <cstdint>

#include "device/simd/isa.h"

namespace ingot {

struct AssignRows {
  int64_t experts, k, rows;  ///< of the whole call
  const float* logits;
  float* matrix;    ///< costs of sinkhorn, or scores
  const float* d1;  ///< [E]
  int32_t* ids;     ///< [rows, k]
  bool sigmoid;
};

/// matrix = exp(l - largest of the row).
INGOT_ISA_KERNEL(void, assign_costs, (const AssignRows& args, int64_t begin, int64_t end));
/// matrix = softmax(l) or sigmoid(l).
INGOT_ISA_KERNEL(void, assign_scores, (const AssignRows& args, int64_t begin, int64_t end));
/// sums[e] += d0_t cost_te over the rows, with d0 from d1.
INGOT_ISA_KERNEL(void, sinkhorn_rows, (const AssignRows& args, int64_t begin, int64_t end, float* sums));
/// The k largest of cost_te d1_e.
INGOT_ISA_KERNEL(void, sinkhorn_choose, (const AssignRows& args, int64_t begin, int64_t end));

}  // namespace ingot
