// attention: causal softmax attention inside each document or cached sequence.
//
//   z_tj = scale q_t . k_j;  with a soft cap c: z_tj <- c tanh(z_tj / c)
//   o_t  = sum_j softmax_j(z_tj) v_j over the tokens j <= t of the same span, the cached past included.
//          A window of w: only t - w < j (w keys, the token itself among them).
//          A window in blocks of b: only the w / b latest blocks, counted from the start of the packed row:
//          floor((j + phase) / b) > floor((t + phase) / b) - w / b
//   lse_t = log sum_j exp(z_tj)
//   max_logit = max over t and j of z_tj, per head; 0 where there are no rows
//
// Shapes: qkv_TW, packed as H query heads and G key heads of width K, then G value heads of width V, so
//         W = (H + G) K + G V; any float type. Query head h reads key head h / (H / G).
//         documents (i32, optional: ops/sequence/documents.h), in place of AttentionAttr::rows.
//         -> o [T, H V] (qkv's type), lse [T, H] and max_logit [H] (f32, or f64; no gradient).
// Statistics, probabilities and sums are in fp32. Key blocks are counted from the start of the document and
// merged in ascending order, so o and lse of a token have the same bits whether its document comes packed
// with others, in chunks or token by token (docs/numerics.md rule 5).
// Spans with a state (inference): the call appends its keys and values to the state's layer, whose type must
// be qkv's, and has no backward.
#pragma once
#include <cmath>

#include "device/attention/attention.h"
#include "ops/sequence/batch_layout.h"
#include "tape/tape.h"

namespace ingot {

struct AttentionAttr {
  int64_t heads = 1;                  ///< H
  int64_t kv_heads = 1;               ///< G, divides H
  int64_t head_width = 0;             ///< K, of queries and keys
  double scale = 0;                   ///< 0: 1 / sqrt(K)
  int64_t window = 0;                 ///< 0: none
  double softcap = 0;                 ///< 0: none
  const BatchLayout* rows = nullptr;  ///< nullptr: all rows are one document
  int64_t layer = 0;                  ///< of the states
  int64_t value_width = 0;            ///< V; 0: K
  int64_t window_block = 0;  ///< 0: the window counts tokens; else blocks of this many, which divides it

  double score_scale() const { return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(head_width)); }
  AttentionWindow window_in(const SequenceSpan& span) const { return {window, window_block, span.phase}; }
  int64_t values() const { return value_width > 0 ? value_width : head_width; }
  /// W.
  int64_t packed_width() const { return (heads + kv_heads) * head_width + kv_heads * values(); }
};

inline constexpr uint32_t kAttentionDocuments = 1;  ///< its input

struct AttentionResult {
  Value o;
  Value lse;
  Value max_logit;
};

AttentionResult attention(Tape& tape, const AttentionAttr& attr, const Value& qkv_TW,
                          const Value& documents = {});

const Op& attention_op();
Kernel attention_reference();

}  // namespace ingot
