// From a call of cca to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/cca/isa_cca.h"
#include "tape/op.h"

namespace ingot {

/// What forward and backward share: neither taps, nor buffers, nor what a pass writes or reads besides.
CcaRows cca_rows(const OpCall& call);
/// Adds what backward reads and writes; y where the attributes say that heads follow from the result.
void set_cca_gradients(const OpCall& call, CcaRows& args);
/// Floats of the sums of a chunk of rows: four of C, then one of G.
int64_t cca_sum_floats(const CcaRows& args);
/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_cca(const OpCall& call);

}  // namespace ingot
