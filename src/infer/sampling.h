// How tokens are drawn: the options, and their ranges. row_sampler.h draws.
#pragma once
#include <cstdint>

namespace ingot {

struct SamplingOptions {
  double temperature = 1.0;  ///< 0: greedy (ties to the lowest id)
  int64_t top_k = 0;         ///< keep the k most likely; 0: all
  double top_p = 1.0;        ///< keep the smallest set of most likely tokens with this much probability
  double min_p = 0.0;        ///< drop tokens less likely than min_p times the most likely one
  uint64_t seed = 0;

  bool filters() const { return temperature > 0 && (top_k > 0 || top_p < 1 || min_p > 0); }
};

/// Throws an Error that names the first option outside its range.
void validate(const SamplingOptions& options);

struct TokenProbability {
  int32_t id = 0;
  float logprob = 0;
};

}  // namespace ingot
