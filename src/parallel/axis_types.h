// What each value of a recorded tape is to the ranks of the tensor axis, derived from one table of ops and from where the
// parameters are cut; nothing is annotated by hand. It finds, on the null device and on any one rank, what otherwise shows
// as a slightly wrong gradient: a missing or doubled collective.
//
//   replicate  equal on all ranks
//   varying    each rank has a part of its own: columns, heads, rows, a part of the vocabulary
//   partial    the ranks' values are summands of the value
//
// Collectives are pairs (source, destination): copy_to_axis replicate -> varying, reduce_from_axis partial -> replicate,
// reduce_scatter_rows partial -> varying, all_gather_rows varying -> varying (rows; columns stay parts), merge_vocabulary
// varying -> replicate; likewise shard_index and shard_rows for data, replicate -> varying. A product that contracts a cut
// dimension, a look-up in a table cut by rows, and counts over rows, make a partial value; only sums pass one on. Every other op gives what its
// inputs are. A replicated activation must not meet a varying one: its cotangent would be a part, and copy_to_axis is missing.
// A replicated parameter may: then its gradient is a part, and ParameterSpec::tensor_gradient must say so.
#pragma once
#include <map>
#include <string>

#include "nn/context.h"

namespace ingot {

enum class AxisType : uint8_t { replicate, varying, partial };
const char* name_of(AxisType type);

struct AxisTypes {
  std::map<int32_t, AxisType> values;   ///< by the tape's id
  std::map<int, AxisType> gradients;    ///< by parameter, of those that the tape used: varying where it is cut
};

/// Follows c.tape over c.tensor, which has several ranks. Throws Error that names the op, its segment and its inputs' types.
AxisTypes tensor_axis_types(const Context& c);

}  // namespace ingot
