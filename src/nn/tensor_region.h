// The borders of a sublayer whose products are cut over the tensor axis (first by output columns, then by input rows).
// Inside, each tensor rank has its columns of all rows. Outside, activations are equal on all of them or, under sequence
// parallelism, each has its share of the rows, in rank order. One rank: nothing is recorded.
#pragma once
#include "nn/context.h"
#include "ops/collective/collective.h"
#include "ops/shard_index/shard_index.h"

namespace ingot {

inline int tensor_ranks(const Context& c) {
  const int size = c.tensor != nullptr ? c.tensor->size() : 1;
  INGOT_CHECK(size == c.weights.placement().tensor_size,
              "weights are cut over {} tensor ranks, the group has {}", c.weights.placement().tensor_size,
              size);
  return size;
}
/// h before a product cut by columns. Backward sums the ranks' cotangents.
inline Value enter_tensor_region(const Context& c, const Value& h) {
  if (tensor_ranks(c) == 1) return h;
  return c.sequence_parallel ? all_gather_rows(c.tape, c.tensor, h) : copy_to_axis(c.tape, c.tensor, h);
}
/// The sum of the ranks' parts after a product cut by rows.
inline Value leave_tensor_region(const Context& c, const Value& part) {
  if (tensor_ranks(c) == 1) return part;
  if (!c.sequence_parallel) return reduce_from_axis(c.tape, c.tensor, part);
  if (part.dim(0) % c.tensor->size() != 0)
    throw Error(fmt::format("sequence parallelism: {} rows cannot be shared out over {} tensor ranks",
                            part.dim(0), c.tensor->size()),
                "take a micro-batch whose number of tokens is a multiple of the tensor ranks");
  return reduce_scatter_rows(c.tape, c.tensor, part);
}
/// A data column's entries of the rows that this rank has outside of regions.
inline Value rows_outside(const Context& c, const Value& column_T) {
  if (!c.sequence_parallel || tensor_ranks(c) == 1) return column_T;
  const int64_t rows = column_T.dim(0) / c.tensor->size(), first = c.tensor->rank() * rows;
  return shard_rows(c.tape, {first, rows}, column_T);
}
/// The bias of a product cut by rows: the sum must contain it once, so the first rank adds it.
inline Value row_bias(const Context& c, int index) {
  return c.weights.placement().tensor_rank == 0 ? c.param(index) : Value();
}

}  // namespace ingot
