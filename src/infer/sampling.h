// Samples a token from logits, with temperature, top-k, top-p and min-p. A pure function of its arguments.
#pragma once
#include <cstdint>
#include <span>

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

/// The token for position `index` of sequence `stream`. Filters apply in the order temperature, top-k, top-p,
/// min-p; what they keep is renormalised. The random number is Philox(seed, sampling, stream)[index].
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, uint64_t stream,
                     uint64_t index);

}  // namespace ingot
