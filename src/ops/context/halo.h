// with_halo, without_halo: adds and removes, before each chunk of a context rank's rows, the chunk's two
// preceding rows (ops/sequence/context_rows.h). They come from the ranks that have them; before a sequence
// they are zeros.
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

Value with_halo(Tape& tape, const ContextAttr& attr, const Value& x_TW);
Value without_halo(Tape& tape, const ContextAttr& attr, const Value& y_TW);

const Op& with_halo_op();
const Op& without_halo_op();

}  // namespace ingot
