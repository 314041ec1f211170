// A product with a weight of the table, and its low-rank adapter where it has one.
#pragma once
#include "nn/context.h"
#include "ops/activation/activation.h"

namespace ingot {

/// x W^T + bias (ops/linear) in the compute type, plus the adapter's scale (x A^T) B^T (ops/low_rank).
Value project(Context& c, const Value& x_TK, int weight, const Value& bias_N = {});
/// Its activation; where no adapter adds to the product, devices may make both by one kernel.
Value project_and_activate(Context& c, ActivationKind kind, const Value& x_TK, int weight,
                           const Value& bias_N = {});

}  // namespace ingot
