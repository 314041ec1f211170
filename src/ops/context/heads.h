// rows_to_heads: from a share of the rows with all heads to all rows with a share of the heads, over a context axis or
// neighbours on it (all-to-all, spec megatron-moe LC-4, LC-5). heads_to_rows: back. Each is the other's backward.
//
//   local x [T / n, W] <-> whole y [T, W / n]; rows of the whole are in the order of the sequences (ops/sequence/context_rows).
//   W packs up to three kinds of heads (queries, keys, values), each shared out by itself: rank r has heads r H / n .. of
//   each. Any type. The rules of collective.h hold.
#pragma once
#include "ops/context/halo.h"

namespace ingot {

struct HeadsAttr {
  ContextAttr context;
  int64_t heads[3] = {0, 0, 0};  ///< of each kind, multiples of n
  int64_t width[3] = {0, 0, 0};  ///< of a head

  int64_t packed() const { return heads[0] * width[0] + heads[1] * width[1] + heads[2] * width[2]; }  ///< W
};

Value rows_to_heads(Tape& tape, const HeadsAttr& attr, const Value& x);
Value heads_to_rows(Tape& tape, const HeadsAttr& attr, const Value& y);

const Op& rows_to_heads_op();
const Op& heads_to_rows_op();

}  // namespace ingot
