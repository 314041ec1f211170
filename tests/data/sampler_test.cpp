// data/permutation, mixture, sampler, loader: the order of training is exact, even, resumable and costs
// nothing to skip.
#include "data/sampler.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/loader.h"
#include "data/permutation.h"
#include "support/data_support.h"

namespace ingot::data::sampler_test {

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Permutation, IsABijectionForEverySmallSize) {
  for (int64_t n = 1; n <= 300; ++n) {
    const Permutation p(n, 11, static_cast<uint64_t>(n));
    std::set<int64_t> images;
    for (int64_t i = 0; i < n; ++i) images.insert(p(i));
    EXPECT_EQ(static_cast<int64_t>(images.size()), n);
    EXPECT_EQ(*images.begin(), 0);
    EXPECT_EQ(*images.rbegin(), n - 1);
  }
}

TEST(Permutation, IsABijectionForLargerSizesAndStaysInRangeForHugeOnes) {
  for (const int64_t n : {4095, 4096, 4097, 65535, 99991}) {
    const Permutation p(n, 5, 1);
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) seen[static_cast<size_t>(p(i))] = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), n);
  }
  for (const int64_t n : {(int64_t{1} << 40) + 3, int64_t{1} << 62, (int64_t{1} << 62) - 1}) {
    const Permutation p(n, 5, 1);
    std::set<int64_t> images;
    for (int64_t i = 0; i < 1000; ++i) images.insert(p(n - 1 - i));
    EXPECT_EQ(images.size(), 1000u);
    EXPECT_LT(*images.rbegin(), n);
  }
}

TEST(Permutation, SmallOrdersAreEquallyLikely) {
  std::map<std::vector<int64_t>, int> orders;
  const int trials = 24000;
  for (uint64_t stream = 0; stream < trials; ++stream) {
    const Permutation p(4, 1, stream);
    ++orders[{p(0), p(1), p(2), p(3)}];
  }
  EXPECT_EQ(orders.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : orders)
    chi_squared += std::pow(count - trials / 24.0, 2) / (trials / 24.0);
  EXPECT_LT(chi_squared, 60) << "23 degrees of freedom: 60 is exceeded once in 30,000";
}

TEST(Permutation, LeavesNoTraceOfTheOrder) {
  const int64_t n = 100000;
  const Permutation p(n, 9, 0);
  const Permutation q(n, 9, 1);
  int64_t neighbours = 0;
  int64_t fixed = 0;
  double correlation = 0;
  for (int64_t i = 0; i + 1 < n; ++i) {
    neighbours += std::abs(p(i) - p(i + 1)) <= 8 ? 1 : 0;  // 16 / n of all pairs: 16 expected
    fixed += p(i) == q(i) ? 1 : 0;                         // 1 expected
    correlation += (static_cast<double>(p(i)) / n - 0.5) * (static_cast<double>(p(i + 1)) / n - 0.5) * 12;
  }
  EXPECT_LT(neighbours, 40);
  EXPECT_LT(fixed, 8);
  EXPECT_LT(std::abs(correlation / n), 5 / std::sqrt(static_cast<double>(n)));
}

TEST(Mixture, RunningSharesAreExactAndCountsMatchTheSequence) {
  const std::vector<double> weights = {0.75, 0.12, 0.1, 0.03, 0, 1e-4};
  const double sum = 1.0001;
  for (const uint64_t seed : {0, 1, 77}) {
    const Mixture mixture(weights, seed);
    std::vector<int64_t> counts(weights.size());
    double worst = 0;
    for (int64_t n = 0; n < 200000; ++n) {
      for (size_t s = 0; s < weights.size() && n % 977 == 0; ++s) EXPECT_EQ(mixture.count(s, n), counts[s]);
      ++counts[mixture.source_of(n)];
      for (size_t s = 0; s < weights.size(); ++s)
        worst = std::max(
            worst, std::abs(static_cast<double>(counts[s]) - weights[s] / sum * static_cast<double>(n + 1)));
    }
    EXPECT_LT(worst, 6) << "samples off the exact share, at any time";
    EXPECT_EQ(counts[4], 0);
    for (size_t s = 0; s < 4; ++s)
      EXPECT_NEAR(static_cast<double>(counts[s]) / 200000, weights[s] / sum, 0.005 * weights[s]);
  }
}

TEST(Mixture, CountsFarAway) {
  const Mixture mixture(std::vector<double>{3, 5, 2}, 4);
  for (const int64_t n : {int64_t{1} << 40, (int64_t{1} << 55) + 12345}) {
    int64_t total = 0;
    for (size_t s = 0; s < 3; ++s) {
      total += mixture.count(s, n);
      EXPECT_NEAR(static_cast<double>(mixture.count(s, n)) / static_cast<double>(n), mixture.share(s), 1e-9);
      EXPECT_EQ(mixture.count(s, n + 1) - mixture.count(s, n), mixture.source_of(n) == s ? 1 : 0);
    }
    EXPECT_EQ(total, n);
  }
}

TEST(Mixture, SingleSourceAndBadWeights) {
  const Mixture one(std::vector<double>{0, 2, 0}, 1);
  EXPECT_EQ(one.source_of(12345), 1u);
  EXPECT_EQ(one.count(1, 1000), 1000);
  EXPECT_NE(error_of([] { Mixture(std::vector<double>{}, 0); }).find("no sources"), std::string::npos);
  EXPECT_NE(error_of([] { Mixture(std::vector<double>{0, 0}, 0); }).find("sum to 0"), std::string::npos);
  EXPECT_NE(error_of([] { Mixture(std::vector<double>{1, -1}, 0); }).find("weight 1"), std::string::npos);
  EXPECT_NE(error_of([] { Mixture(std::vector<double>{NAN}, 0); }).find("nan"), std::string::npos);
}

TEST(Mixture, PlannedEpochsWarn) {
  // The example of the Smol playbook: 54 B tokens of mathematics, 3 % of a phase of 9 T tokens, are read 5
  // times.
  const std::vector<PlannedSource> sources = {{"web", 10'000'000'000'000}, {"math", 54'000'000'000}};
  const std::vector<PlannedPhase> phases = {{"phase 1", 9'000'000'000'000, {97, 3}}};
  const auto use = planned_use(sources, phases);
  EXPECT_NEAR(use[1].epochs, 5.0, 1e-6);
  EXPECT_FALSE(use[0].repeats_too_often);
  const std::string warning = repetition_warning(use);
  EXPECT_NE(warning.find("'math'"), std::string::npos);
  EXPECT_NE(warning.find("5.0 epochs"), std::string::npos);
  EXPECT_EQ(warning.find("'web'"), std::string::npos);
  EXPECT_EQ(repetition_warning(planned_use(sources, phases, 6.0)), "");
}

std::vector<std::string> documents(int count, int length, char letter) {
  std::vector<std::string> result;
  for (int i = 0; i < count; ++i)
    result.push_back(fmt::format("{}{:06}", letter, i) +
                     std::string(static_cast<size_t>(length + i % 13), letter));
  return result;
}

class SamplerTest : public testing::Test {
 protected:
  void SetUp() override {
    web_ = test::make_split(dir_, "web", documents(400, 40, 'w'));
    math_ = test::make_split(dir_, "math", documents(50, 30, 'm'), true, 500);
    code_ = test::make_split(dir_, "code", documents(80, 60, 'c'));
    options_.seed = 42;
    options_.sequence_length = 32;
  }
  std::vector<SamplerSource> mix(double web, double math, double code) const {
    return {{web_, web}, {math_, math}, {code_, code}};
  }
  test::TempDir dir_;
  std::shared_ptr<const TokenSplit> web_, math_, code_;
  SamplerOptions options_;
};

TEST_F(SamplerTest, EpochsVisitEverySequenceOnceInNewOrders) {
  const Sampler sampler({{math_, 1}}, options_);
  const int64_t n = sampler.epoch_samples(0);
  ASSERT_GT(n, 30);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> order;
    for (const RowOrigin& o : sampler.batch(epoch * n, n).origins) order.push_back(o.sequence);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), static_cast<size_t>(n));
    epochs.push_back(order);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST_F(SamplerTest, BatchesAreSlicesOfOneSequenceForAnyRanks) {
  const Sampler sampler(mix(0.75, 0.1, 0.15), options_);
  const Batch whole = sampler.batch(100, 16);
  for (const int64_t ranks : {2, 4, 16}) {
    std::vector<int32_t> tokens;
    std::vector<RowOrigin> origins;
    for (int64_t r = 0; r < ranks; ++r) {
      const Batch part = sampler.batch(100 + r * 16 / ranks, 16 / ranks);
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      origins.insert(origins.end(), part.origins.begin(), part.origins.end());
    }
    EXPECT_EQ(tokens, whole.tokens);
    EXPECT_EQ(origins, whole.origins);
  }
}

TEST_F(SamplerTest, RestoredAtTwentyRandomPointsTheBatchesAreTheSame) {
  for (const SampleMode mode : {SampleMode::stream, SampleMode::best_fit, SampleMode::random}) {
    options_.mode = mode;
    options_.sequence_length = mode == SampleMode::best_fit ? 128 : 32;
    const Sampler undisturbed(mix(0.6, 0.3, 0.1), options_);
    const Random random(1, RandomPurpose::test);
    for (uint64_t k = 0; k < 20; ++k) {
      const auto at = static_cast<int64_t>(random.below(k, 5000));
      const std::string saved = to_json(undisturbed.state_at(at));
      const SamplerState state = parse_sampler_state(saved, "state");
      const Sampler resumed(mix(0.6, 0.3, 0.1), options_, &state);
      EXPECT_EQ(resumed.batch(state.samples, 8), undisturbed.batch(at, 8));
      EXPECT_EQ(to_json(resumed.state_at(at)), saved);
      EXPECT_EQ(resumed.state_at(at + 777), undisturbed.state_at(at + 777));
    }
  }
}

TEST_F(SamplerTest, OrderOfSourcesInTheConfigDoesNotMatter) {
  const Sampler a({{web_, 0.7}, {math_, 0.3}}, options_);
  const Sampler b({{math_, 0.3}, {web_, 0.7}}, options_);
  EXPECT_EQ(a.batch(0, 20), b.batch(0, 20));
}

TEST_F(SamplerTest, ASourceThatComesBackGoesOnWhereItStopped) {
  const Sampler first(mix(0.5, 0.5, 0), options_);
  const SamplerState one = first.state_at(60);
  const SamplerState begin_two = next_phase(one, 32);
  const Sampler second({{web_, 1}, {code_, 1}}, options_, &begin_two);  // math pauses
  const SamplerState two = parse_sampler_state(to_json(second.state_at(160)), "state");
  const SamplerState begin_three = next_phase(two, 32);
  const Sampler third({{math_, 1}}, options_, &begin_three);
  const int64_t before = one.sources[1].consumed;
  ASSERT_EQ(one.sources[1].name, "math");
  EXPECT_GT(before, 20);
  EXPECT_EQ(third.batch(160, 1).origins[0].source_sample, before);
  EXPECT_EQ(third.batch(160, 1).origins[0].sample, 160);
  const Sampler only_math({{math_, 1}}, options_);
  EXPECT_EQ(third.batch(160, 10).tokens, only_math.batch(before, 10).tokens);
  EXPECT_EQ(third.state_at(170).sources[1].consumed, before + 10);
  EXPECT_EQ(third.state_at(170).sources[2].consumed, two.sources[2].consumed);
}

TEST_F(SamplerTest, AnotherSequenceLengthConvertsByTokens) {
  const Sampler first({{web_, 1}}, options_);
  const SamplerState next = next_phase(first.state_at(33), 100);
  EXPECT_EQ(next.sources[0].phase_begin, 11);  // ceil(33 * 32 / 100)
  options_.sequence_length = 100;
  EXPECT_EQ(Sampler({{web_, 1}}, options_, &next).batch(33, 1).origins[0].source_sample, 11);
}

TEST_F(SamplerTest, WindowsOfTextStandInRowsBesideWholeDocuments) {
  options_.sequence_length = 128;
  options_.mode = SampleMode::stream;
  const Sampler alone({{web_, 1}}, options_);
  options_.mode = SampleMode::best_fit;
  const std::vector<SamplerSource> sources = {{math_, 0.5}, {web_, 0.5, true}};
  const Sampler both(sources, options_);
  ASSERT_EQ(both.source(1).source(), "web");
  EXPECT_EQ(both.epoch_samples(1), alone.epoch_samples(0));
  EXPECT_EQ(both.packed(1).fill, 1);
  EXPECT_GT(both.packed(0).fill, 0.5);
  const Batch batch = both.batch(0, 40);
  int64_t windows = 0;
  for (size_t row = 0; row < 40; ++row) {
    if (batch.origins[row].source != 1) continue;
    const Batch window = alone.batch(windows++, 1);
    const auto begin = batch.tokens.begin() + static_cast<int64_t>(row) * 128;
    EXPECT_EQ(std::vector<int32_t>(begin, begin + 128), window.tokens) << row;
  }
  EXPECT_EQ(windows, 20);
  const SamplerState state = parse_sampler_state(to_json(both.state_at(17)), "state");
  EXPECT_EQ(Sampler(sources, options_, &state).batch(17, 8), both.batch(17, 8));
}

TEST_F(SamplerTest, AStateOfAnotherRunIsRefused) {
  const Sampler sampler(mix(0.6, 0.3, 0.1), options_);
  const SamplerState state = sampler.state_at(50);
  const auto error = [&](std::vector<SamplerSource> sources, const SamplerOptions& options) {
    return error_of([&] { Sampler(std::move(sources), options, &state); });
  };
  EXPECT_EQ(error(mix(0.6, 0.3, 0.1), options_), "");
  EXPECT_NE(error(mix(0.5, 0.4, 0.1), options_).find("weight 0.3, but this run has 0.4"), std::string::npos);
  EXPECT_NE(error({{web_, 0.6}, {math_, 0.3}}, options_).find("'code'"), std::string::npos);
  SamplerOptions other = options_;
  other.seed = 43;
  EXPECT_NE(error(mix(0.6, 0.3, 0.1), other).find("seed 42, but this run has 43"), std::string::npos);
  other = options_;
  other.sequence_length = 64;
  EXPECT_NE(error(mix(0.6, 0.3, 0.1), other).find("sequence length"), std::string::npos);
  other = options_;
  other.mode = SampleMode::random;
  EXPECT_NE(error(mix(0.6, 0.3, 0.1), other).find("mode stream, but this run has random"), std::string::npos);
  const test::TempDir changed;
  const auto web = test::make_split(changed, "web", documents(400, 41, 'w'));
  EXPECT_NE(
      error({{web, 0.6}, {math_, 0.3}, {code_, 0.1}}, options_).find("source 'web' no longer has the tokens"),
      std::string::npos);
}

TEST_F(SamplerTest, BadStatesAreErrors) {
  const std::string good = to_json(Sampler(mix(1, 1, 1), options_).state_at(9));
  const Random random(8, RandomPurpose::test);
  for (uint64_t round = 0; round < 2000; ++round) {
    std::string text = good;
    text[random.below(2 * round, text.size())] = static_cast<char>(random.below(2 * round + 1, 256));
    error_of([&] { parse_sampler_state(text, "state"); });
  }
  EXPECT_NE(error_of([&] { parse_sampler_state("{}", "s"); }).find("'format' is missing"), std::string::npos);
}

TEST_F(SamplerTest, TooShortSourcesAndDuplicatesAreErrors) {
  options_.sequence_length = 100000;
  EXPECT_NE(error_of([&] {
              Sampler({{web_, 1}}, options_);
            }).find("not one sequence of 100000"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              Sampler({{web_, 0}, {test::make_split(dir_, "big", {std::string(100001, 'x')}), 1}}, options_);
            }),
            "");
  options_.sequence_length = 32;
  EXPECT_NE(error_of([&] {
              Sampler({{web_, 1}, {web_, 1}}, options_);
            }).find("two data sources"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Sampler({}, options_); }).find("no sources"), std::string::npos);
}

TEST_F(SamplerTest, NeighboursInABatchComeFromDifferentDocuments) {
  // One long document among many short ones: its slices must be spread over the epoch.
  std::vector<std::string> texts = documents(1000, 60, 'a');
  texts.push_back(std::string(7000, 'L'));
  const auto split = test::make_split(dir_, "long", texts);
  const Sampler sampler({{split, 1}}, options_);
  double worst = 0;
  int64_t touching = 0;
  const int64_t batches = sampler.epoch_samples(0) / 32;
  for (int64_t b = 0; b < batches; ++b) {
    const Batch batch = sampler.batch(b * 32, 32);
    worst = std::max(worst, diversity(batch).largest_share);
    for (size_t r = 1; r < 32; ++r)
      touching += std::abs(batch.origins[r].first_token - batch.origins[r - 1].first_token) <= 32 ? 1 : 0;
    EXPECT_GE(diversity(batch).documents, 32);
  }
  EXPECT_LT(worst, 0.35);  // the long document holds 9 % of the tokens
  EXPECT_LT(touching, 6);
}

TEST_F(SamplerTest, RandomModeDrawsEveryOffsetOfNanoGpt) {
  options_.mode = SampleMode::random;
  options_.sequence_length = 8;
  options_.rows.document_mask = false;
  const auto split = test::make_split(dir_, "tiny", {"0123456789ABCDEF"}, false);
  const Sampler sampler({{split, 1}}, options_);
  std::map<int64_t, int> offsets;
  const Batch batch = sampler.batch(0, 8000);
  for (const RowOrigin& o : batch.origins) ++offsets[o.first_token];
  EXPECT_EQ(offsets.size(), 8u);  // 0 .. 7: randint(len(data) - block_size)
  EXPECT_EQ(offsets.rbegin()->first, 7);
  for (const auto& [offset, count] : offsets) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(batch.valid_targets, 8000 * 8);
}

/// Memory that the allocator holds from the system. (Not the resident size: a sanitizer's quarantine grows
/// it.)
int64_t heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.arena + info.hblkhd);
}

TEST_F(SamplerTest, CostDoesNotDependOnThePlannedSteps) {
  const Sampler sampler(mix(0.75, 0.1, 0.15), options_);
  const auto soak = [&](int64_t steps) {  // 200 steps spread over the whole run, the last one included
    double best = 1e9;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const double begin = monotonic_seconds();
      for (int64_t k = 1; k <= 200; ++k) sampler.batch((steps * k / 200 - 1) * 16, 16);
      best = std::min(best, monotonic_seconds() - begin);
    }
    return best;
  };
  soak(1000);
  const int64_t before = heap_bytes();
  const double near = soak(32'000);
  const double far = soak(3'200'000);
  RecordProperty("near_us_per_batch", std::to_string(near / 200 * 1e6));
  RecordProperty("far_us_per_batch", std::to_string(far / 200 * 1e6));
  EXPECT_LT(far, 3 * near);
  EXPECT_LT(heap_bytes() - before, 1 << 20);
}

TEST_F(SamplerTest, PrefetchKeepsTheOrderAndCarriesErrors) {
  const Sampler sampler(mix(0.75, 0.1, 0.15), options_);
  PrefetchLoader loader(
      [&](int64_t step) {
        if (step == 30) throw Error("planted at 30");
        return sampler.batch(step * 4, 4);
      },
      5, 3);
  for (int64_t step = 5; step < 30; ++step) {
    EXPECT_EQ(loader.next_step(), step);
    EXPECT_EQ(loader.next(), sampler.batch(step * 4, 4));
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(error_of([&] { loader.next(); }), "planted at 30");
}

TEST(Prefetch, StopsWhileTheQueueIsFull) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> made{0};
    {
      PrefetchLoader loader([&](int64_t) { return ++made, Batch{}; }, 0, 2);
      if (i % 2 == 0) loader.next();
    }
    EXPECT_LE(made, 4);
  }
}

}  // namespace ingot::data::sampler_test
