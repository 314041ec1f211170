// The borders of a sublayer whose products are cut over the tensor axis (first by output columns, then by input rows).
// Outside, activations are equal on all tensor ranks; inside, each rank has its columns. One rank: nothing is recorded.
#pragma once
#include "nn/context.h"
#include "ops/collective/collective.h"

namespace ingot {

/// h, equal on all ranks, before a product cut by columns. Backward sums the ranks' cotangents.
inline Value enter_tensor_region(const Context& c, const Value& h) {
  const int size = c.tensor != nullptr ? c.tensor->size() : 1;
  INGOT_CHECK(size == c.weights.placement().tensor_size, "weights are cut over {} tensor ranks, the group has {}",
              c.weights.placement().tensor_size, size);
  return copy_to_axis(c.tape, c.tensor, h);
}
/// The sum of the ranks' parts after a product cut by rows.
inline Value leave_tensor_region(const Context& c, const Value& part) { return reduce_from_axis(c.tape, c.tensor, part); }
/// The bias of a product cut by rows: the sum must contain it once, so the first rank adds it.
inline Value row_bias(const Context& c, int index) {
  return c.weights.placement().tensor_rank == 0 ? c.param(index) : Value();
}

}  // namespace ingot
