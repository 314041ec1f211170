// Draws the next token of rows of logits: temperature, top-k, top-p, min-p, and the log-probabilities of what
// was drawn. Pure functions; exponentials, sums and choices have the same bits on every machine and for any
// number of threads.
//
// x = logits / temperature (a product with the fp32 reciprocal), w = exp(x - max x). Filters apply in the
// order top-k, top-p, min-p; equal weights count in ascending order of ids. The token is the first whose
// running sum of kept weights, in ascending order of ids, exceeds u times their sum;
// u = Philox(seed, sampling, stream)[position]. Temperature 0: the largest logit, the lowest id of equals.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "infer/sampling.h"

namespace ingot {

/// One draw from a row of logits.
struct RowDraw {
  std::span<const float> logits;  ///< all rows of the head, as training's statistics count them
  int64_t vocab = 0;              ///< only ids below it are drawn, kept or listed
  SamplingOptions sampling;
  uint64_t stream = 0, position = 0;  ///< of the random number
  int64_t top = 0;                    ///< most likely ids to list
  bool kept = false;                  ///< list what the filters kept
  std::optional<int32_t> chosen;      ///< this id is not drawn but given
};

struct DrawnToken {
  int32_t id = -1;
  /// By the model itself: logit - lse with the bits of ops/head.
  float logprob = 0;
  /// x - log sum exp x over the kept ids (all rows of the head, where nothing filters). At temperature 0, and
  /// of a chosen id that is not kept: logprob.
  float sampled_logprob = 0;
  std::vector<TokenProbability> top;  ///< by the model itself, the most likely first, ties by id
  std::vector<int32_t> kept;          ///< ascending; empty where nothing filters
  std::optional<Error> error;         ///< logits that are not finite: nothing was drawn
};

/// The stream of random numbers of a request's sample.
uint64_t sampling_stream(uint64_t key, int64_t sample);

DrawnToken draw_token(const RowDraw& draw);
/// In parallel.
void draw_tokens(std::span<const RowDraw> draws, std::span<DrawnToken> drawn);

}  // namespace ingot
