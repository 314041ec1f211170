// Steps on batches with columns: known cotangents of any sign give one gradient in every head mode, recorded
// log-probabilities are compared bit for bit, forced tokens are never in the loss, and sums do not depend on
// micro-batches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "data/sequence_rows.h"
#include "post/objectives/preference_objective.h"
#include "support/small_models.h"
#include "train/step.h"

namespace ingot::test::step_columns_test {
namespace {

constexpr int64_t kBudget = 24;

struct Sequences {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<uint8_t>> in_loss;
  std::vector<std::vector<float>> cotangent, reference;
  std::vector<data::TokenSequence> list(bool with_cotangent) const {
    std::vector<data::TokenSequence> all;
    for (size_t i = 0; i < tokens.size(); ++i) {
      all.push_back({.tokens = tokens[i], .in_loss = in_loss[i], .reference = reference[i]});
      if (with_cotangent) all.back().cotangent = cotangent[i];
    }
    return all;
  }
};

/// Eight sequences of 5 to 11 tokens: two of prompt, then answers of which some tokens are forced.
Sequences sequences(int64_t vocabulary) {
  Sequences s;
  const Random random(3, RandomPurpose::test);
  uint64_t draw = 0;
  for (size_t i = 0; i < 8; ++i) {
    const size_t n = 5 + static_cast<size_t>(random.below(draw++, 7));
    auto& tokens = s.tokens.emplace_back();
    auto& in_loss = s.in_loss.emplace_back();
    auto& cotangent = s.cotangent.emplace_back();
    auto& reference = s.reference.emplace_back();
    for (size_t t = 0; t < n; ++t) {
      tokens.push_back(static_cast<int32_t>(random.below(draw++, static_cast<uint64_t>(vocabulary))));
      in_loss.push_back(t >= 2 && random.below(draw++, 4) != 0);
      cotangent.push_back((static_cast<float>(random.below(draw++, 1000)) - 500) / 250);
      reference.push_back(-static_cast<float>(random.below(draw++, 1000)) / 200);
    }
    in_loss.back() = 1;
  }
  return s;
}

struct Ran {
  StepStats stats;
  std::vector<std::vector<float>> gradients;
};

Ran run(Model& model, const data::Batch& batch, StepOptions options) {
  GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
  StepRunner runner(model, gradients);
  Ran ran{runner.run(batch, options), {}};
  gradients.finish_step();
  for (int i = 0; i < model.decoder().table().size(); ++i) {
    if (!model.decoder().table()[i].trainable) continue;
    const Tensor g = gradients.gradient(i);
    ran.gradients.emplace_back(g.as<float>(), g.as<float>() + g.numel());
  }
  return ran;
}

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return a.size() == b.size();
}

double largest_difference(const std::vector<std::vector<float>>& a,
                          const std::vector<std::vector<float>>& b) {
  double worst = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[i].size(); ++j) {
      worst = std::max(worst, std::abs(static_cast<double>(a[i][j]) - b[i][j]));
      scale = std::max(scale, std::abs(static_cast<double>(a[i][j])));
    }
  return worst / scale;
}

std::shared_ptr<const Objective> on_policy() {
  Objective o;
  o.known_cotangent = true;
  o.evaluate = [](const ObjectiveInputs& in) {
    ObjectiveResult r;
    for (size_t t = 0; t < in.targets.size(); ++t)
      if (in.targets[t] >= 0) r.loss += static_cast<double>(in.columns.cotangent[t]) * in.logprob[t];
    return r;
  };
  return std::make_shared<const Objective>(o);
}

}  // namespace

class StepColumns : public ::testing::Test {
 protected:
  std::unique_ptr<Model> model_ = small_model("llama", Precision::f32());
  Sequences s_ = sequences(model_->config().vocab);
  data::Batch batch(bool cotangent = true) const {
    return data::pack_sequences(s_.list(cotangent), {.budget = kBudget, .rows_multiple = 4});
  }
};

TEST_F(StepColumns, KnownCotangentsGiveOneGradientInEveryHeadMode) {
  const auto objective = on_policy();
  const Ran gradient = run(*model_, batch(), {.head = HeadMode::gradient, .objective = objective}),
            store = run(*model_, batch(), {.head = HeadMode::store, .objective = objective}),
            recompute = run(*model_, batch(), {.head = HeadMode::recompute, .objective = objective});
  EXPECT_TRUE(same_bits(gradient.gradients, store.gradients));
  EXPECT_TRUE(same_bits(gradient.gradients, recompute.gradients));
  EXPECT_EQ(gradient.stats.objective, store.stats.objective);
  // The same cotangents from an objective that knows them after its forward pass only.
  Objective later;
  later.evaluate = [](const ObjectiveInputs& in) {
    ObjectiveResult r;
    r.d_logprob.assign(in.columns.cotangent.begin(), in.columns.cotangent.end());
    return r;
  };
  const Ran same =
      run(*model_, batch(), {.head = HeadMode::store, .objective = std::make_shared<const Objective>(later)});
  EXPECT_TRUE(same_bits(gradient.gradients, same.gradients));
}

TEST_F(StepColumns, WeightsOfCrossEntropyAreKnownToo) {
  data::Batch weighted = batch(false);
  weighted.columns.weight.assign(weighted.tokens.size(), 0.0F);
  for (size_t t = 0; t < weighted.tokens.size(); ++t) weighted.columns.weight[t] = static_cast<float>(t % 3);
  const Ran gradient = run(*model_, weighted, {.head = HeadMode::gradient, .z_coefficient = 0.01}),
            store = run(*model_, weighted, {.head = HeadMode::store, .z_coefficient = 0.01}),
            plain = run(*model_, batch(false), {.head = HeadMode::gradient, .z_coefficient = 0.01});
  EXPECT_LT(largest_difference(gradient.gradients, store.gradients), 1e-6);
  EXPECT_FALSE(same_bits(gradient.gradients, plain.gradients));
}

TEST_F(StepColumns, RecordedLogprobsAreThoseOfTheStepUntilWeightsMove) {
  data::Batch b = batch();
  GradientBuffer gradients(model_->decoder().table(), {}, DType::f32);
  StepRunner runner(*model_, gradients);
  b.columns.recorded = runner.logprobs(b, 2);
  StepOptions options{.head = HeadMode::gradient, .objective = on_policy()};
  for (const int64_t micro : {1, 2, 4}) {
    options.micro_batch = micro;
    const StepStats stats = runner.run(b, options);
    EXPECT_EQ(stats.compared, b.valid_targets);
    EXPECT_EQ(stats.unequal, 0) << micro;
  }
  const int norm = model_->decoder().table().find("final_norm.weight");
  ASSERT_GE(norm, 0);
  const Tensor weight = model_->weights().master(norm);
  for (int64_t i = 0; i < weight.numel(); ++i)
    weight.as<float>()[i] = std::nextafter(weight.as<float>()[i], 2.0F);
  EXPECT_GT(runner.run(b, options).unequal, 0);
}

/// A forced token, or a prompt's, has no target: what its columns say changes nothing. Put back as a target,
/// it changes the gradient, the number of targets, and what was compared.
TEST_F(StepColumns, ForcedTokensAreNeverInTheLoss) {
  const data::Batch b = batch();
  data::Batch loud = b, trained = b;
  int64_t forced = 0;
  for (const data::DocumentPiece& piece : b.pieces) {
    if (piece.document < 0) continue;
    for (int32_t t = piece.begin; t + 1 < piece.end; ++t) {
      const auto at = static_cast<size_t>(t);
      if (b.targets[at] >= 0) continue;
      ++forced;
      loud.columns.cotangent[at] = 1000;
      trained.targets[at] = b.tokens[at + 1];
      trained.columns.cotangent[at] = -1;
    }
  }
  ASSERT_GT(forced, 10);
  const StepOptions options{.head = HeadMode::gradient, .objective = on_policy()};
  const Ran quiet = run(*model_, b, options);
  EXPECT_TRUE(same_bits(quiet.gradients, run(*model_, loud, options).gradients));
  const Ran caught = run(*model_, trained, options);
  EXPECT_EQ(caught.stats.valid, quiet.stats.valid + forced);
  EXPECT_GT(largest_difference(quiet.gradients, caught.gradients), 1e-3);
}

/// Pairs stand in one row, so a micro-batch has whole ones: loss and cotangents are those of the whole batch.
TEST_F(StepColumns, LossesOfPairsDoNotDependOnMicroBatches) {
  for (const auto& entry : enum_names(PreferenceLoss{})) {
    SCOPED_TRACE(entry.name);
    PreferenceConfig config;
    config.loss = entry.value;
    data::Batch pairs =
        data::pack_sequences(s_.list(false), {.budget = kBudget, .rows_multiple = 4, .group = 2});
    pairs.divisor = 4;
    pairs.baseline = 0.3;
    StepOptions options{.head = HeadMode::store, .micro_batch = 4, .objective = preference_objective(config)};
    const Ran whole = run(*model_, pairs, options);
    EXPECT_EQ(whole.stats.divisor, 4);
    for (const int64_t micro : {1, 2}) {
      options.micro_batch = micro;
      const Ran parts = run(*model_, pairs, options);
      EXPECT_NEAR(parts.stats.objective, whole.stats.objective, 1e-12 * std::abs(whole.stats.objective));
      ASSERT_EQ(parts.stats.sums.size(), whole.stats.sums.size());
      for (size_t i = 0; i < whole.stats.sums.size(); ++i)
        EXPECT_NEAR(parts.stats.sums[i], whole.stats.sums[i],
                    1e-12 * std::max(1.0, std::abs(whole.stats.sums[i])));
      EXPECT_LT(largest_difference(parts.gradients, whole.gradients), 1e-6);
    }
  }
}

}  // namespace ingot::test::step_columns_test
