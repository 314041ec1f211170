// From logits to a token: filters against sorting everything, frequencies against probabilities, bad options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "infer/row_sampler.h"
#include "support/other_threads.h"

namespace ingot::test::sampling_test {

std::vector<float> logits_of(int64_t count, uint64_t seed, double scale) {
  const Random random(seed, RandomPurpose::sampling, 7);
  std::vector<float> logits;
  for (int64_t i = 0; i < count; ++i)
    logits.push_back(static_cast<float>(
        scale * static_cast<double>(random.bits64(static_cast<uint64_t>(i)) % 1000) / 1000));
  return logits;
}

int32_t sample_token(const std::vector<float>& logits, const SamplingOptions& o, uint64_t stream,
                     uint64_t position) {
  RowDraw d;
  d.logits = logits, d.vocab = static_cast<int64_t>(logits.size());
  d.sampling = o, d.stream = stream, d.position = position;
  const DrawnToken drawn = draw_token(d);
  if (drawn.error) throw *drawn.error;
  return drawn.id;
}

/// Probabilities after the filters, by sorting all tokens.
std::vector<double> filtered(const std::vector<float>& logits, const SamplingOptions& o) {
  const float top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (const float x : logits) p.push_back(std::exp((static_cast<double>(x) - top) / o.temperature));
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(o.top_k)));
  double sum = 0, seen = 0;
  for (const size_t i : order) sum += p[i];
  std::vector<double> left(p.size());
  for (const size_t i : order) {
    if (seen > 0 && (seen >= o.top_p * sum || p[i] < o.min_p)) break;
    seen += left[i] = p[i];
  }
  for (double& x : left) x /= seen;
  return left;
}

TEST(Sampling, DrawsWhatTheFiltersLeave) {
  for (const int64_t count : {1, 5, 300, 1500}) {
    const std::vector<float> logits = logits_of(count, 3, 6);
    for (const SamplingOptions& o :
         {SamplingOptions{.temperature = 0.8}, SamplingOptions{.top_k = 3},
          SamplingOptions{.top_k = 7, .top_p = 0.5}, SamplingOptions{.temperature = 2, .top_p = 0.7},
          SamplingOptions{.top_p = 0.99, .min_p = 0.3}}) {
      const std::vector<double> p = filtered(logits, o);
      constexpr int kDraws = 2000;
      std::vector<int> drawn(p.size());
      for (uint64_t i = 0; i < kDraws; ++i) ++drawn[static_cast<size_t>(sample_token(logits, o, 1, i))];
      for (size_t i = 0; i < p.size(); ++i) {
        if (p[i] == 0) {
          ASSERT_EQ(drawn[i], 0) << "token " << i << " of " << count;
        }
        ASSERT_NEAR(drawn[i], kDraws * p[i], 5 * std::sqrt(kDraws * p[i]) + 5)
            << "token " << i << " of " << count;
      }
    }
  }
}

TEST(Sampling, TheSameSeedAndPlaceDrawTheSame) {
  const std::vector<float> logits = logits_of(1000, 4, 1);
  std::vector<int32_t> first, again;
  for (uint64_t i = 0; i < 20; ++i) {
    first.push_back(sample_token(logits, {.seed = 9}, 2, i));
    again.push_back(sample_token(logits, {.seed = 9}, 2, i));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(std::count(first.begin(), first.end(), first[0]), 20);
}

TEST(Sampling, NoTemperatureTakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 3, 2}, {.temperature = 0}, 0, 0), 1);
}

TEST(Sampling, TheLikeliestIsFoundAnywhere) {
  for (const size_t count : {1, 15, 16, 17, 50})
    for (size_t first = 0; first < count; ++first) {
      std::vector<float> logits(count, -2.0f);
      logits[first] = -1.0f;
      for (size_t later = first; later < count; later += 5) logits[later] = -1.0f;
      EXPECT_EQ(sample_token(logits, {.temperature = 0}, 0, 0), static_cast<int32_t>(first)) << count;
    }
}

TEST(Sampling, OptionsOutsideTheirRangesAreNamed) {
  for (const SamplingOptions& o :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.top_k = -1}, SamplingOptions{.top_p = 0},
        SamplingOptions{.top_p = 1.5}, SamplingOptions{.min_p = -0.1}})
    EXPECT_THROW(validate(o), Error);
}

TEST(Sampling, LogitsThatAreNotFiniteAreAnError) {
  for (const size_t count : {1, 15, 16, 17, 300})
    for (const size_t at : {size_t{0}, count / 2, count - 1})
      for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
        for (const double temperature : {0.0, 0.8}) {
          std::vector<float> logits = logits_of(static_cast<int64_t>(count), 3, 6);
          EXPECT_NO_THROW(sample_token(logits, {.temperature = temperature}, 0, 0));
          logits[at] = bad;
          try {
            sample_token(logits, {.temperature = temperature}, 0, 0);
            ADD_FAILURE() << count << " " << at << " " << bad;
          } catch (const Error& e) {
            EXPECT_NE(std::string(e.what()).find(fmt::format("of token {},", at)), std::string::npos)
                << e.what();
          }
        }
}

TEST(Sampling, LogProbabilitiesAreTheModelsOwn) {
  const std::vector<float> logits = logits_of(1000, 5, 6);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  for (const int64_t k : {1, 20, 70, 2000}) {
    RowDraw d;
    d.logits = logits, d.vocab = 1000, d.chosen = 7, d.top = k, d.sampling.top_k = 3;
    const DrawnToken drawn = draw_token(d);
    EXPECT_EQ(drawn.id, 7);
    EXPECT_NEAR(drawn.logprob, logits[7] - std::log(sum), 1e-5);
    ASSERT_EQ(drawn.top.size(), static_cast<size_t>(std::min<int64_t>(k, 1000)));
    for (size_t i = 0; i < drawn.top.size(); ++i) {
      EXPECT_EQ(static_cast<size_t>(drawn.top[i].id), order[i]);
      EXPECT_NEAR(drawn.top[i].logprob, logits[order[i]] - std::log(sum), 1e-5);
    }
  }
}

TEST(Sampling, WhatWasKeptAndItsLogProbabilityAreReported) {
  const std::vector<float> logits = logits_of(700, 6, 8);
  for (const SamplingOptions& o :
       {SamplingOptions{.temperature = 0.7}, SamplingOptions{.top_k = 9}, SamplingOptions{.top_p = 0.6},
        SamplingOptions{.temperature = 1.5, .min_p = 0.2}}) {
    const std::vector<double> p = filtered(logits, o);
    RowDraw d;
    d.logits = logits, d.vocab = 700, d.sampling = o, d.kept = true;
    for (d.position = 0; d.position < 20; ++d.position) {
      const DrawnToken drawn = draw_token(d);
      EXPECT_NEAR(drawn.sampled_logprob, std::log(p[static_cast<size_t>(drawn.id)]), 1e-4);
      if (!o.filters()) {
        EXPECT_TRUE(drawn.kept.empty());
        continue;
      }
      std::vector<int32_t> kept;
      for (size_t i = 0; i < p.size(); ++i)
        if (p[i] > 0) kept.push_back(static_cast<int32_t>(i));
      EXPECT_EQ(drawn.kept, kept);
    }
  }
}

TEST(Sampling, TiesKeepTheLowestIds) {
  const std::vector<float> logits(40, 1.0f);
  RowDraw d;
  d.logits = logits, d.vocab = 30, d.kept = true;
  d.sampling.top_k = 3;
  EXPECT_EQ(draw_token(d).kept, (std::vector<int32_t>{0, 1, 2}));
  d.sampling = {.top_p = 0.1};
  EXPECT_EQ(draw_token(d).kept, (std::vector<int32_t>{0, 1, 2})) << "of the ids that can be drawn";
}

TEST(Sampling, RowsDoNotDependOnThreads) {
  std::vector<std::vector<float>> rows;
  std::vector<RowDraw> draws(50);
  for (size_t i = 0; i < draws.size(); ++i) rows.push_back(logits_of(3000, i + 1, 7));
  for (size_t i = 0; i < draws.size(); ++i) {
    draws[i].logits = rows[i], draws[i].vocab = 2990, draws[i].position = i;
    if (i % 2 == 0) draws[i].sampling.top_p = 0.9;
  }
  std::vector<DrawnToken> expected(draws.size()), found(draws.size());
  draw_tokens(draws, expected);
  const OtherThreads others;
  draw_tokens(draws, found);
  for (size_t i = 0; i < draws.size(); ++i) {
    EXPECT_EQ(found[i].id, expected[i].id);
    EXPECT_EQ(found[i].sampled_logprob, expected[i].sampled_logprob);
  }
}

}  // namespace ingot::test::sampling_test
