// exchange_rows, return_rows: an all-to-all of rows whose counts only routing knows, and the way back.
//
//   exchange_rows  rows grouped by destination (ops/group_by_rank) -> the rows that other ranks sent, ordered
//                  by source. The counts are sent first; then rows, weights and ids at once. Backward returns
//                  the cotangents of rows and weights. With counts by block, [n, B], the rows for a rank are
//                  those of B blocks, and what arrives is ordered by block, then by source.
//   return_rows    y = the rows that arrived, back on the ranks that sent them, in the order in which they
//                  were sent. Backward sends the cotangents as exchange_rows sent the rows.
//
// Shapes do not depend on routing: exchange_rows has a capacity of A rows for what arrives; rows beyond what
// arrived are zero (ids -1). A token is sent at most once to a rank, so ranks x tokens is enough for every
// routing; with a smaller capacity, a step that needs more is an Error.
//   exchange_rows  rows_SD, probs_SK, ids_SK (i32), sent (i32 [n] or [n, B])
//                  -> rows_AD, probs_AK, ids_AK, received (i32, as sent)
//   return_rows    y_AD, sent, received -> y_SD
// The rules of collective.h hold.
#pragma once
#include "ops/collective/collective.h"

namespace ingot {

struct ExchangeAttr {
  Communicator* comm = nullptr;  ///< nullptr: one rank
  int64_t capacity =
      0;                ///< A, rows for what arrives (exchange_rows), or S, rows that were sent (return_rows)
  bool bf16 = false;    ///< rows in f32 (not their weights) are rounded to bf16 to be sent
  double rows_out = 0;  ///< expected number of rows that leave this rank, for the cost
  const Communicator* group() const { return comm; }
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
