// with_halo: a context rank's rows with each chunk's two predecessors before it (ops/sequence/context_rows.h), which come
// from the ranks that have them; zeros before a sequence. without_halo: takes them away again.
//
//   x_TW (any float) -> y [T + 2 chunks, W] and back. Backward of with_halo sends the halo's cotangents home and adds them
//   there; backward of without_halo gives the halo zeros. The rules of collective.h hold.
#pragma once
#include "comm/communicator.h"
#include "ops/sequence/context_rows.h"
#include "tape/tape.h"

namespace ingot {

struct ContextAttr {
  Communicator* comm = nullptr;
  const ContextRows* rows = nullptr;  ///< must outlive the tape
};

Value with_halo(Tape& tape, const ContextAttr& attr, const Value& x_TW);
Value without_halo(Tape& tape, const ContextAttr& attr, const Value& y_TW);

const Op& with_halo_op();
const Op& without_halo_op();

}  // namespace ingot
