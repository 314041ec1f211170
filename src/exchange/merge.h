// Merges adapters into the weights that they adapt, W + scale B A, for programs without adapters.
#pragma once
#include "checkpoint/reader.h"
#include "nn/parameter.h"

namespace ingot {

/// Adds the adapter's term to rows [first_row, first_row + R) of parameter `index`, which are in `rows_RK`.
/// Sums are in double, and rounded once to the type of `rows_RK`.
void merge_adapter(const CheckpointReader& reader, const ParameterTable& table, int index, int64_t first_row,
                   const Tensor& rows_RK);

}  // namespace ingot
