// context_attention: ops/attention over documents that lie in chunks on the ranks of a context axis. Queries stay; keys and
// values travel, in one of two forms.
//
//   gather  all ranks' keys and values come to every rank (all-gather); backward gathers them again and sends the cotangents
//           home with a reduce-scatter
//   ring    n - 1 times each rank passes the block it holds to the next; the parts of a row's result are merged by their
//           log-sum-exp as they come: with m the largest score so far, o and l = sum exp(z - m) are rescaled when m grows.
//           Backward lets the blocks go round once more, with their cotangents, which come home complete.
//           (Liu et al., Ring Attention, 2023; spec megatron-moe LC-2)
//
// Shapes: qkv_TW [local rows, W] packed as ops/attention says -> o_TV, lse_TH, max_logit_H of the local rows. Nothing of the
// whole sequence is kept for backward. A row's sums run over blocks in the order in which they come: ascending ranks (gather),
// own, previous, ... (ring); so results agree with one rank's to rounding, not in bits. Keys and values travel in qkv's type,
// cotangents in fp32 (f64). In the ring the next block comes while this one is computed.
#pragma once
#include "ops/attention/attention.h"
#include "ops/context/halo.h"

namespace ingot {

struct ContextAttentionAttr {
  AttentionAttr attention;  ///< its rows are not used
  ContextAttr context;
  bool ring = false;
};

AttentionResult context_attention(Tape& tape, const ContextAttentionAttr& attr, const Value& qkv_TW);

const Op& context_attention_op();

}  // namespace ingot
