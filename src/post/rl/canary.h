// Canaries: what shows that a policy has left language. Compressibility is the only one that touches rewards;
// the others are only recorded. None changes the learning rate. ([ZAYA1-8B] §IV-B3, App. E)
#pragma once
#include <cstdint>
#include <span>

namespace ingot {

struct Compressibility {
  int64_t chunk = 1024;     ///< tokens per chunk; a short last one belongs to the chunk before it
  double threshold = 0.05;  ///< ratios below it are repetition; 0: nothing is
};

/// The smallest ratio of compressed to raw bytes over the chunks of a rollout, whose ids are 4 little-endian
/// bytes each, in one raw deflate stream (window 2^10, level 1, synchronized after each chunk, without what a
/// synchronization alone costs). A rollout shorter than a chunk is one. 1 without ids.
double least_compression_ratio(std::span<const int32_t> ids, int64_t chunk);

/// Share of the ids in the highest `share` of [0, vocab), where byte-level vocabularies keep their rarest.
double rare_token_share(std::span<const int32_t> ids, int64_t vocab, double share);

/// Share of tokens that are rare (highest tenth) and at least 2 nats less likely than under the uniform
/// distribution: gibberish (the CWM report, 2025).
double gibberish_share(std::span<const int32_t> ids, std::span<const float> logprob, int64_t vocab);

}  // namespace ingot
