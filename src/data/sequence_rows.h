// Rows of whole sequences that a program has in memory: rollouts, pairs, references. What the sampler does
// for prepared text (sampler.h, mode best_fit), for sequences that exist only now.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"

namespace ingot::data {

/// n tokens and what is known of each. Value i of an array belongs to tokens[i]; an empty array is absent.
/// tokens[0] is never a target. Views: the caller keeps the memory.
struct TokenSequence {
  std::span<const int32_t> tokens = {};
  std::span<const uint8_t> in_loss = {};  ///< 0: not in the loss (prompts, forced tokens); absent: all are
  std::span<const float> weight = {}, advantage = {}, recorded = {}, reference = {}, cotangent = {};
  std::span<const int32_t> version = {};
};

struct SequenceRowsOptions {
  int64_t budget = 0;         ///< positions of a row: micro-batches are rows, so tokens of a forward pass
  int64_t rows_multiple = 1;  ///< rows are added until their number is a multiple: data ranks
  int64_t group = 1;          ///< sequences i group, ..., (i + 1) group - 1 stand in one row
};

/// A batch of all sequences, packed best fit decreasing (packing.h); deterministic. Columns that one sequence
/// has, all must have; `sequence` is the index in the list. A masked target has no values in other columns.
/// The divisor is 0: the caller sets it. Rows without sequences have no target. Error where sequences that
/// stand together have more tokens than a row, naming the first.
Batch pack_sequences(std::span<const TokenSequence> sequences, const SequenceRowsOptions& options);

}  // namespace ingot::data
