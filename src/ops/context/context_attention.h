// context_attention: ops/attention over documents that lie in chunks on the ranks of a context axis. Queries
// stay; keys and values are sent, in one of two forms.
//
//   gather  every rank gets all ranks' keys and values (all-gather); backward gathers them again and returns
//           the cotangents by a reduce-scatter
//   ring    n - 1 times each rank passes the block that it holds to the next rank. Partial results of a row
//           are merged by their log-sum-exp as blocks arrive: with m the largest score so far, o and l = sum
//           exp(z - m) are rescaled when m grows. Backward passes the blocks round once more, together with
//           their cotangents. (Ring Attention, Liu et al. 2023)
//
// Shapes: qkv_TW of the local rows, packed as in ops/attention -> o [T, H V], lse [T, H], max_logit [H] of
// the local rows. Nothing of the whole sequence is kept for backward. A row's sums run over blocks in the
// order of their arrival (gather: ascending ranks; ring: own, previous, ...), so results agree with those of
// one rank to rounding, not in bits. Keys and values are sent in qkv's type, cotangents in fp32 (f64 for
// f64).
#pragma once
#include "ops/attention/attention.h"
#include "ops/context/halo.h"

namespace ingot {

struct ContextAttentionAttr {
  AttentionAttr attention;  ///< its rows are not used
  ContextAttr context;
  bool ring = false;
  const Communicator* group() const { return context.comm; }
};

AttentionResult context_attention(Tape& tape, const ContextAttentionAttr& attr, const Value& qkv_TW);

const Op& context_attention_op();
Kernel context_attention_reference();

}  // namespace ingot
