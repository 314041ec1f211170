// rows_to_heads, heads_to_rows: from a rank's rows with all heads to all rows with the rank's heads, over a
// context axis or over neighbours on it, and back. Each is an all-to-all and the other's backward. (Ulysses,
// Jacobs et al. 2023)
//
// Shapes: local x [T / n, W] <-> whole y [T, W / n] of any type; whole rows are in the order of the sequences
// (ops/sequence/context_rows.h). W packs up to three kinds of heads (queries, keys, values); each kind is
// sharded by itself: rank r has heads r H / n .. (r + 1) H / n - 1 of each. The rules of
// ops/collective/collective.h hold.
#pragma once
#include "ops/context/halo.h"

namespace ingot {

struct HeadsAttr {
  ContextAttr context;
  int64_t heads[3] = {0, 0, 0};  ///< of each kind, multiples of n
  int64_t width[3] = {0, 0, 0};  ///< of a head

  const Communicator* group() const { return context.comm; }
  int64_t packed() const { return heads[0] * width[0] + heads[1] * width[1] + heads[2] * width[2]; }  ///< W
};

Value rows_to_heads(Tape& tape, const HeadsAttr& attr, const Value& x);
Value heads_to_rows(Tape& tape, const HeadsAttr& attr, const Value& y);

const Op& rows_to_heads_op();
const Op& heads_to_rows_op();

}  // namespace ingot
