// From a call of assign to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/assign/isa_assign.h"
#include "tape/op.h"

namespace ingot {

/// What a call's scratch memory holds.
struct AssignScratch {
  explicit AssignScratch(const OpCall& call);
  static int64_t bytes(const OpCall& call);

  float* matrix;    ///< [T, E]
  float* d1;        ///< [E]
  float* sums;      ///< [E]; the CPU's
  float* partials;  ///< [chunks, E]
  int32_t* state;   ///< [2]; that of GPUs
};

/// With the scratch memory's matrix and d1.
AssignRows assign_rows(const OpCall& call);
/// Tokens that an expert takes, under expert_choice.
int64_t assign_taken(const OpCall& call);
/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_assign(const OpCall& call);

}  // namespace ingot
