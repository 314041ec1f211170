// with_halo, without_halo: adds and removes, before each chunk of a context rank's rows, the chunk's two
// preceding rows (ops/sequence/context_rows.h). They come from the ranks that have them; before a sequence
// they are zeros.
//
// Of both rows the first `both` columns are sent, of the nearer one also the last `nearer`; the others are
// zeros in y, and their cotangents there count for nothing. What cca needs: queries and keys of both rows,
// delayed values of the nearer one.
//
// Shapes: x_TW (any float) -> y [T + 2 chunks, W], and back. Backward of with_halo returns the halo's
// cotangents to the ranks that sent the rows, which add them; backward of without_halo gives the halo zeros.
// The rules of ops/collective/collective.h hold.
#pragma once
#include "comm/communicator.h"
#include "ops/sequence/context_rows.h"
#include "tape/tape.h"

namespace ingot {

struct ContextAttr {
  Communicator* comm = nullptr;
  const ContextRows* rows = nullptr;  ///< must outlive the tape
  const Communicator* group() const { return comm; }
};

struct HaloAttr : ContextAttr {
  int64_t both = -1;  ///< -1: all columns
  int64_t nearer = 0;
};

Value with_halo(Tape& tape, const HaloAttr& attr, const Value& x_TW);
Value without_halo(Tape& tape, const ContextAttr& attr, const Value& y_TW);

const Op& with_halo_op();
const Op& without_halo_op();

}  // namespace ingot
