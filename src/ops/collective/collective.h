// The ops of this folder are collectives: they send data between the ranks of one axis, each with its adjoint
// as backward.
//
//   copy_to_axis         y = x, equal on all ranks. Each rank has a partial sum of the cotangent: backward
//                        adds them (all-reduce).
//   reduce_from_axis     y = sum over ranks of x. The cotangent is equal on all ranks: backward is the
//                        identity.
//   all_gather_rows      y = all ranks' rows in rank order. Backward: own rows of the sum over ranks
//                        (reduce-scatter).
//   reduce_scatter_rows  y = own rows of the sum over ranks. Backward: all ranks' rows (all-gather).
//   exchange_rows, return_rows   exchange.h: an all-to-all whose counts only routing knows, and its way back
//   merge_vocabulary             vocabulary.h: statistics of a distribution over a sharded vocabulary
//
// Shapes: x [T, ...] of any type (all_gather_rows also sends i32, without gradient) -> y of x's type, n T or
// T / n rows; T is the same on all n ranks. Order of sums: comm/communicator.h.
// Every rank of the axis must record the same collectives in the same order; backward and recomputation then
// keep the order too. The communicator must outlive the tape; on the null device it is asked for its size
// only.
#pragma once
#include "comm/communicator.h"
#include "tape/tape.h"

namespace ingot {

struct CollectiveAttr {
  Communicator* comm = nullptr;  ///< nullptr: one rank
  const Communicator* group() const { return comm; }
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
