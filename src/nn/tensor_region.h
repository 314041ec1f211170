// Entering and leaving a tensor region: a sublayer whose products are sharded over the tensor axis, first by
// output columns, then by input rows ([Megatron-TP], sequence parallelism included). Inside, each tensor rank
// has its columns of all rows. Outside, activations are equal on all tensor ranks or, under sequence
// parallelism, each has its shard of the rows, in rank order. With one rank nothing is recorded.
#pragma once
#include "nn/context.h"
#include "ops/collective/collective.h"
#include "ops/shard_index/shard_index.h"

namespace ingot {

inline int tensor_ranks(const Context& c) {
  const int size = c.tensor != nullptr ? c.tensor->size() : 1;
  INGOT_CHECK(size == c.weights.placement().tensor_size,
              "weights are sharded over {} tensor ranks, the group has {}", c.weights.placement().tensor_size,
              size);
  return size;
}
/// h [T, D] before a product that is sharded by columns. Backward sums the cotangents of the ranks.
inline Value enter_tensor_region(const Context& c, const Value& h) {
  if (tensor_ranks(c) == 1) return h;
  return c.sequence_parallel ? all_gather_rows(c.tape, c.tensor, h) : copy_to_axis(c.tape, c.tensor, h);
}
/// The sum over ranks after a product that is sharded by rows. Throws Error where sequence parallelism cannot
/// shard the rows.
inline Value leave_tensor_region(const Context& c, const Value& partial_sum) {
  if (tensor_ranks(c) == 1) return partial_sum;
  if (!c.sequence_parallel) return reduce_from_axis(c.tape, c.tensor, partial_sum);
  if (partial_sum.dim(0) % c.tensor->size() != 0)
    throw Error(fmt::format("sequence parallelism: {} rows do not divide among {} tensor ranks",
                            partial_sum.dim(0), c.tensor->size()),
                "take a micro-batch whose number of tokens is a multiple of the tensor ranks");
  return reduce_scatter_rows(c.tape, c.tensor, partial_sum);
}
/// The entries of a data column [T] for the rows that this rank has outside of tensor regions.
inline Value rows_outside(const Context& c, const Value& column_T) {
  if (!c.sequence_parallel || tensor_ranks(c) == 1) return column_T;
  const int64_t rows = column_T.dim(0) / c.tensor->size(), first = c.tensor->rank() * rows;
  return shard_rows(c.tape, {first, rows}, column_T);
}
/// The bias of a product that is sharded by rows: only the first rank adds it, so the sum contains it once.
inline Value row_bias(const Context& c, int index) {
  return c.weights.placement().tensor_rank == 0 ? c.param(index) : Value();
}

}  // namespace ingot
