// Samples a token from logits, with temperature, top-k, top-p and min-p. A pure function of its arguments.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

struct SamplingOptions {
  double temperature = 1.0;  ///< 0: greedy (ties to the lowest id)
  int64_t top_k = 0;         ///< keep the k most likely; 0: all
  double top_p = 1.0;        ///< keep the smallest set of most likely tokens with this much probability
  double min_p = 0.0;        ///< drop tokens less likely than min_p times the most likely one
  uint64_t seed = 0;
};

/// Throws an Error that names the first option outside its range.
void validate(const SamplingOptions& options);

/// Throws an Error that says how many of the logits are NaN or infinite, and which is the first.
void require_finite(std::span<const float> logits);

/// The token for position `index` of sequence `stream`. Filters apply in the order temperature, top-k, top-p,
/// min-p; what they keep is renormalised. The random number is Philox(seed, sampling, stream)[index]. Throws
/// require_finite()'s Error.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, uint64_t stream,
                     uint64_t index);

struct TokenProbability {
  int32_t id;
  double logprob;
};
/// The model's own log-probabilities, before temperature and filters: of `id`, then of the k most likely
/// tokens, the most likely first (ties to the lowest id).
std::vector<TokenProbability> log_probabilities(std::span<const float> logits, int32_t id, int64_t k);

}  // namespace ingot
