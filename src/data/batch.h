// A training batch: B rows of S tokens with what the model and the loss need to know about them, and where
// each row came from.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ingot::data {

inline constexpr int32_t kMasked = -1;  ///< target of a position that the loss leaves out

/// Flattened rows [begin, end) of a batch, 0 <= begin < end <= B*S.
struct Span {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const Span&) const = default;
};

/// A piece of one document inside a batch row, which records its origin. Document -1: padding.
struct DocumentPiece {
  int32_t begin = 0;
  int32_t end = 0;
  int64_t document = -1;
  bool operator==(const DocumentPiece&) const = default;
};

/// Where a batch row came from.
struct RowOrigin {
  int32_t source = 0;         ///< index in the sampler's list
  int64_t sample = 0;         ///< global sample number since the start of the run
  int64_t source_sample = 0;  ///< sample number within the source
  int64_t sequence = 0;  ///< number of the window (stream), of the packed row (best_fit); -1 in mode random
  int64_t first_token = -1;  ///< of the window within the split; -1 in mode best_fit
  bool operator==(const RowOrigin&) const = default;
};

/// What a kind of phase (train/phase_kind.h) says of every position beside the ids. A column is empty or has
/// B*S values; value t belongs to targets[t], the token at t + 1, and is 0 (ids: -1) where nothing is to be
/// said.
struct TokenColumns {
  std::vector<float> weight;     ///< factor on the token's loss; empty: 1
  std::vector<float> advantage;  ///< of the token, in reinforcement learning
  std::vector<float>
      recorded;  ///< log-probability that the sampler noted when it drew the token; NaN: none did
  std::vector<float> reference;   ///< log-probability under the reference model
  std::vector<float> cotangent;   ///< d loss / d log-probability, where it is known before the forward pass
  std::vector<int32_t> sequence;  ///< number of the sequence within the batch; -1: none
  std::vector<int32_t> version;   ///< of the weights that drew the token
  bool operator==(const TokenColumns&) const = default;
};

struct Batch {
  int64_t rows = 0;                ///< B
  int64_t sequence_length = 0;     ///< S
  std::vector<int32_t> tokens;     ///< [B*S]
  std::vector<int32_t> targets;    ///< [B*S], the next token, kMasked where nothing is to be predicted
  std::vector<int32_t> positions;  ///< [B*S], 0, 1, ... within each span
  std::vector<Span> spans;  ///< tile [0, B*S) in order; attention does not cross them. Never across two rows
  std::vector<DocumentPiece> pieces;  ///< tile [0, B*S) in order: the documents, whatever the spans are
  std::vector<RowOrigin> origins;     ///< [B]
  int64_t valid_targets = 0;          ///< targets that are not masked
  /// Experts that the routers must choose, where they are replayed: by MoE layer in order, [B*S][top_k];
  /// -1: no choice. Empty: they choose.
  std::vector<std::vector<int32_t>> routes;
  /// Where targets were drawn from some ids only: row t's distribution is over allowed_ids[allowed[2 t] ..
  /// allowed[2 t + 1]), ascending; an empty range allows every id. Empty: all rows do.
  std::vector<int32_t> allowed, allowed_ids;
  TokenColumns columns;  ///< of kinds of phases other than text
  double divisor = 0;    ///< what the summed loss is divided by; 0: valid_targets
  double baseline = 0;   ///< what the objective compares sequences with (KTO's z)
  double loss_divisor() const { return divisor > 0 ? divisor : static_cast<double>(valid_targets); }
  bool operator==(const Batch&) const = default;
};

/// How rows are presented.
struct RowOptions {
  /// true: every document in a row is a span of its own (attention and positions start anew); false: the row
  /// is one span.
  bool document_mask = true;
  /// Whether the first token of the next document is masked as a target of the last token of the previous
  /// one. Not set: as document_mask, because with a mask nothing of the next document is known at that point.
  std::optional<bool> mask_document_start;
  bool masks_document_start() const { return mask_document_start.value_or(document_mask); }
};

/// How mixed a batch is: a batch full of slices of one long document makes the loss jump.
struct BatchDiversity {
  int64_t documents = 0;     ///< distinct ones
  double largest_share = 0;  ///< of the tokens (padding left out), held by one document
  double span_tokens = 0;    ///< of the span that a token lies in: the mean over tokens
  std::vector<int64_t> rows_per_source;
};
BatchDiversity diversity(const Batch& batch);

}  // namespace ingot::data
