// group_by_rank's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {

std::vector<Kernel> group_by_rank_kernels();
Kernel group_by_rank_reference();

/// Fills the integer outputs of the forward from the ids; an id that is no expert of the model's is a bug of the caller.
void build_rank_map(const OpCall& call);

/// For every choice, the rows that carry it [T, k, copies], or -1: what brings the gradient of its weight back. From ids
/// [T, k] and row_TM, of the call's backward.
std::vector<int32_t> rows_of_choices(const OpCall& call);

}  // namespace ingot
