// Latent attention over its cache of latents, in whole models: absorbed decoding computes the function of the
// materialised forward (with other bits, hence an option), its own bits do not depend on chunks or threads,
// and the cache has the formula's size. ModelInvariance tests that materialised decoding has training's bits.
#include <gtest/gtest.h>

#include <cmath>

#include "infer/engine.h"
#include "support/cached_sequences.h"
#include "support/other_threads.h"
#include "support/small_models.h"
#include "tape/op.h"

namespace ingot::test::latent_invariance_test {

using Values = std::vector<float>;

/// Logits after every `chunk` tokens of a sequence.
std::vector<Values> logits_of(const Model& model, const std::vector<int32_t>& tokens, size_t chunk,
                              LatentDecoding latents) {
  CachedSequences g(model, 1000, latents);
  SequenceState state = g.create();
  SequenceState* const states[] = {&state};
  std::vector<Values> all;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const std::span<const int32_t> part[] = {{tokens.data() + at, std::min(chunk, tokens.size() - at)}};
    all.push_back(g.extend(states, part).front());
  }
  return all;
}

double difference(const std::vector<Values>& a, const std::vector<Values>& b) {
  double worst = 0, scale = 1e-30;
  for (size_t t = 0; t < a.size(); ++t)
    for (size_t i = 0; i < a[t].size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(a[t][i]) - b[t][i]));
      scale = std::max(scale, std::abs(static_cast<double>(b[t][i])));
    }
  return worst / scale;
}

std::vector<int32_t> tokens_of(const Model& model) {
  return packed_batch(1, 150, {150}, model.config().vocab).tokens;
}

TEST(LatentDecoding, AbsorbedEqualsTheMaterialisedForward) {
  for (const char* name : {"mla", "mla-direct"}) {
    const auto f64 = small_model(name, Precision::f64()), f32 = small_model(name, Precision::f32()),
               bf16 = small_model(name, Precision::bf16());
    const auto tokens = tokens_of(*f32);
    const std::vector<int32_t> few(tokens.begin(), tokens.begin() + 70);
    const auto pair = [&](const Model& m, const std::vector<int32_t>& t) {
      return difference(logits_of(m, t, 10, LatentDecoding::absorbed),
                        logits_of(m, t, 10, LatentDecoding::materialised));
    };
    // Logits are returned as floats: in double the two forms may differ in their last bit.
    EXPECT_LE(pair(*f64, few), 1e-7) << name;
    EXPECT_LE(pair(*f32, tokens), 1e-5) << name;
    EXPECT_GT(pair(*f32, tokens), 0) << name << ": the ways should differ";
    EXPECT_LE(pair(*bf16, tokens), 0.1) << name;
  }
}

TEST(LatentDecoding, AbsorbedBitsDoNotDependOnChunksOrThreads) {
  for (const char* name : {"mla", "mla-direct"})
    for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
      const auto model = small_model(name, precision);
      const auto tokens = tokens_of(*model);
      const auto single = logits_of(*model, tokens, 1, LatentDecoding::absorbed);
      for (const size_t chunk : {size_t{7}, size_t{64}, tokens.size()}) {
        const auto other = logits_of(*model, tokens, chunk, LatentDecoding::absorbed);
        for (size_t i = 0; i < other.size(); ++i)
          EXPECT_EQ(other[i], single[std::min((i + 1) * chunk, tokens.size()) - 1])
              << name << " chunk " << chunk;
      }
      const OtherThreads others;
      EXPECT_EQ(logits_of(*model, tokens, 7, LatentDecoding::absorbed).back(), single.back()) << name;
    }
}

TEST(LatentDecoding, CacheHasTheBytesOfTheFormula) {
  for (const auto& [precision, size] : {std::pair{Precision::f32(), 4}, {Precision::bf16(), 2}}) {
    const auto model = small_model("mla", precision);
    const MlaConfig& a = model->config().mla;
    CachedSequences g(*model, 1000, LatentDecoding::absorbed);
    SequenceState state = g.create();
    const auto tokens = tokens_of(*model);
    SequenceState* const states[] = {&state};
    const std::span<const int32_t> all[] = {tokens};
    g.extend(states, all);
    // 150 tokens lie in three pages of 64.
    EXPECT_EQ(state.bytes(), 3 * 64 * model->config().layers * (a.kv_rank + a.rope_width) * size);
  }
}

}  // namespace ingot::test::latent_invariance_test
