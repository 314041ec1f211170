// collective: communication among the ranks of one axis as tape ops, each with its adjoint as backward.
//
//   copy_to_axis      y = x, equal on all ranks; each rank's cotangent is a part: backward sums them (all-reduce)
//   reduce_from_axis  y = sum over ranks of x; the cotangent is equal on all ranks: backward is the identity
//   all_gather_rows   y = all ranks' rows in rank order; backward: sum over ranks, own rows (reduce-scatter)
//   reduce_scatter_rows  y = own rows of the sum over ranks; backward: all ranks' rows (all-gather)
//
// Shapes: x [T, ...] of any type (all_gather_rows also moves i32, without gradient) -> y of x's type, T * n or T / n rows.
// T is the same on all ranks. Sums as comm/communicator.h says. Every rank of the axis must record the same collectives
// in the same order; then backward and recompute keep the order too. The communicator must outlive the tape; on the null
// device it is asked for its size only, and the cost counts the bytes on the wire.
#pragma once
#include "comm/communicator.h"
#include "tape/tape.h"

namespace ingot {

struct CollectiveAttr {
  Communicator* comm = nullptr;  ///< nullptr: one rank
  int size() const { return comm != nullptr ? comm->size() : 1; }
};

/// Builders record nothing and return x where the axis has one rank.
Value copy_to_axis(Tape& tape, Communicator* axis, const Value& x);
Value reduce_from_axis(Tape& tape, Communicator* axis, const Value& x);
Value all_gather_rows(Tape& tape, Communicator* axis, const Value& x);
Value reduce_scatter_rows(Tape& tape, Communicator* axis, const Value& x);

const Op& copy_to_axis_op();
const Op& reduce_from_axis_op();
const Op& all_gather_rows_op();
const Op& reduce_scatter_rows_op();

}  // namespace ingot
