// Products of few rows by packed weights (decoding): bound by reading the weights, so they are read once and
// nothing else is packed or planned. The bits are those of every other product (gemm.h).
#pragma once
#include "device/gemm/gemm.h"

namespace ingot {

/// Computes the product if it is one of these: packed weights, at most kFewRows rows (of each expert), no
/// accumulation, and operands that need no conversion of the weights. False: nothing was done.
bool gemm_few_rows(const GemmArgs& args);
bool gemm_few_rows(const GroupedGemmArgs& args);

}  // namespace ingot
