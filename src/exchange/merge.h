// Adapters merged into the weights they belong to: W + scale B A, for programs that know no adapters.
#pragma once
#include "checkpoint/reader.h"
#include "nn/parameter.h"

namespace ingot {

/// Adds the adapter's term to rows [first_row, first_row + rows_RK.dim(0)) of parameter `index`, which `rows_RK` holds.
/// Sums are in double, then one rounding to its type.
void merge_adapter(const CheckpointReader& reader, const ParameterTable& table, int index, int64_t first_row,
                   const Tensor& rows_RK);

}  // namespace ingot
