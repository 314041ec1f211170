// exchange: rows whose numbers only routing knows, between the ranks of an axis and back (all-to-all), as tape ops.
//
//   exchange_rows  rows grouped by destination (ops/group_by_rank) -> the rows that came, in the order of their source.
//                  The counts go first; then rows, weights and ids travel at once. Backward: the rows' and weights'
//                  cotangents go home.
//                  Of counts by block [n, B] the rows for a rank are those of B blocks, and what came is ordered by block, then
//                  by source.
//   return_rows    y = the rows of `received` back where they came from, in the order in which they left; backward sends
//                  the cotangents as exchange_rows sent the rows.
//
// Shapes do not depend on routing: `room` rows are held for what comes, padding beyond it is zero (ids -1). A token comes
// at most once from its rank, so ranks * tokens is room for every routing; with less, a step that needs more is an Error.
//   exchange_rows  rows_SD, probs_SK, ids_SK (i32), sent (i32 [n] or [n, B]) -> rows_AD, probs_AK, ids_AK, received (as sent)
//   return_rows    y_AD, sent, received -> y_SD
// The rules of collective.h hold: same order on all ranks, the communicator outlives the tape.
#pragma once
#include "ops/collective/collective.h"

namespace ingot {

struct ExchangeAttr {
  Communicator* comm = nullptr;  ///< nullptr: one rank
  int64_t room = 0;     ///< A, rows held for what comes (exchange_rows), or S, rows that left (return_rows)
  bool bf16 = false;    ///< rows in f32 (not their weights) are rounded to bf16 for the journey
  double rows_out = 0;  ///< expected number of rows that leave this rank, for the cost
};

struct Exchanged {
  Value rows_AD, probs_AK, ids_AK, received;
};

Exchanged exchange_rows(Tape& tape, const ExchangeAttr& attr, const Value& rows_SD, const Value& probs_SK,
                        const Value& ids_SK, const Value& sent);
Value return_rows(Tape& tape, const ExchangeAttr& attr, const Value& y_AD, const Value& sent,
                  const Value& received);

const Op& exchange_rows_op();
const Op& return_rows_op();

}  // namespace ingot
