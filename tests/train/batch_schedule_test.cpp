// train/recipe: batch sizes that change during a phase: steps, tokens, rates, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "train/recipe.h"

namespace ingot::batch_schedule_test {

PhaseConfig phase_of(int64_t steps, std::vector<BatchChange> batches) {
  PhaseConfig s;
  s.steps = steps;
  s.batch = 4;
  s.sequence = 10;
  s.batches = std::move(batches);
  return s;
}

/// The batch of every step, made as the trainer makes them.
std::vector<int64_t> sizes(const PhaseConfig& s, const std::vector<double>& losses) {
  BatchProgress p;
  std::vector<int64_t> batches;
  for (int64_t step = 0; step < s.steps; ++step) {
    batches.push_back(s.batch_at(p.level));
    s.after_step(p, losses[static_cast<size_t>(step) % losses.size()]);
  }
  return batches;
}

TEST(BatchSchedule, ByTokens) {
  const PhaseConfig s = phase_of(8, {{100, {}, 8}, {260, {}, 16}});
  EXPECT_EQ(sizes(s, {3.0}), (std::vector<int64_t>{4, 4, 4, 8, 8, 16, 16, 16}));  // 40 80 120 200 280 ...
  EXPECT_EQ(s.planned_steps(), (std::vector<int64_t>{3, 2, 3}));
  EXPECT_EQ(s.tokens(), 10 * (3 * 4 + 2 * 8 + 3 * 16));
  const PhaseConfig skips = phase_of(3, {{30, {}, 6}, {35, {}, 9}});  // one step passes both
  EXPECT_EQ(sizes(skips, {3.0}), (std::vector<int64_t>{4, 9, 9}));
  EXPECT_EQ(skips.planned_steps(), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(phase_of(5, {}).tokens(), 200);
}

TEST(BatchSchedule, ByLoss) {
  PhaseConfig s = phase_of(60, {{{}, 2.0, 8}});
  // The mean follows a drop of the loss with weights falling by 0.95:
  // 3 * 0.95^n + 1 * (1 - 0.95^n) <= 2 at n = 14.
  std::vector<double> losses(60, 1.0);
  std::fill(losses.begin(), losses.begin() + 30, 3.0);
  std::vector<int64_t> expected(60, 8);
  const double weight30 = 1 - std::pow(0.95, 30);
  int64_t n = 1;
  while ((3 * weight30 * std::pow(0.95, n) + 1 - std::pow(0.95, n)) / (1 - std::pow(0.95, 30 + n)) > 2) ++n;
  std::fill(expected.begin(), expected.begin() + 30 + n, 4);
  EXPECT_EQ(sizes(s, losses), expected);
  EXPECT_EQ(s.planned_steps(), (std::vector<int64_t>{60, 0}));  // may never come
  EXPECT_EQ(s.rate_factor(1), 1.0);
  s.batch_rate = BatchRate::sqrt;
  EXPECT_EQ(s.rate_factor(0), 1.0);
  EXPECT_DOUBLE_EQ(s.rate_factor(1), std::sqrt(2.0));
}

TEST(BatchSchedule, FitsRanks) {
  Recipe r;
  r.phases = {phase_of(10, {{100, {}, 16}}), phase_of(10, {})};
  r.phases[0].batch = 8, r.phases[0].batch_rate = BatchRate::sqrt, r.phases[0].micro_batch = 2,
  r.phases[1].batch = 6;
  r.parallel.data = 3;
  EXPECT_THROW(r.fit_batches(), Error);
  Recipe down = r, up = r;
  down.parallel.batch_fit = BatchFit::down, up.parallel.batch_fit = BatchFit::up;
  EXPECT_EQ(down.fit_batches().size(), 2u);
  EXPECT_EQ(
      up.fit_batches(),
      (std::vector<std::string>{
          "phase 'pretrain': 12 sequences a step instead of 8, which do not divide among 3 data ranks",
          "phase 'pretrain': 18 sequences a step instead of 16, which do not divide among 3 data ranks"}));
  EXPECT_EQ(down.phases[0].batch, 6);
  EXPECT_EQ(down.phases[0].batch_at(1), 12);
  EXPECT_EQ(down.phases[1].batch, 6);
  EXPECT_DOUBLE_EQ(down.phases[0].rate_factor(0), std::sqrt(6.0 / 8));
  EXPECT_DOUBLE_EQ(down.phases[0].rate_factor(1), std::sqrt(12.0 / 8));
  EXPECT_DOUBLE_EQ(down.phases[1].rate_factor(0), 1.0);
  r.phases[0].batch = 4, r.parallel.batch_fit = BatchFit::down;
  EXPECT_THROW(r.fit_batches(), Error);  // nothing would be left
}

std::string errors_of(const std::string& phase, const std::string& rest = "") {
  try {
    recipe_from_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n" + rest +
                         "[[phases]]\nsteps = 10\nbatch = 4\nsequence = 10\nwarmup = 0\n" + phase,
                     "test");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(BatchSchedule, ErrorsTeach) {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(errors_of("[[phases.batches]]\ntokens = 100\nbatch = 8\n"), "");
  std::string e = errors_of("micro_batch = 4\n[[phases.batches]]\ntokens = 100\nbatch = 6\n");
  EXPECT_TRUE(has(e, "phases.0.batches.0.batch: 6 is not a multiple of micro_batch = 4")) << e;
  e = errors_of("[[phases.batches]]\nbatch = 6\n");
  EXPECT_TRUE(has(e, "give either tokens or loss, found neither")) << e;
  e = errors_of("[[phases.batches]]\ntokens = 100\nloss = 2.0\nbatch = 6\n");
  EXPECT_TRUE(has(e, "found both")) << e;
  e = errors_of("[[phases.batches]]\ntokens = 100\nbatch = 6\n[[phases.batches]]\ntokens = 90\nbatch = 8\n");
  EXPECT_TRUE(has(e, "found 90 after 100")) << e;
  e = errors_of("[[phases.batches]]\ntokens = 400\nbatch = 6\n");
  EXPECT_TRUE(has(e, "10 steps are 400 tokens")) << e;
  e = errors_of("[[phases.batches]]\ntokens = 100\nbatch = 0\n");
  EXPECT_TRUE(has(e, "must be at least 1, found 0")) << e;
}

TEST(OptimizerConfig, RulesAndErrorsReachTheOptimizer) {
  const std::string rules =
      "[optimizer]\nothers = \"ademamix\"\nmuon.momentum_cooldown = 4\nfirst_moment = \"bf16\"\n"
      "[[optimizer.rules]]\npattern = \"*.qkv.weight\"\noptimizer = \"adamw\"\nlr_multiplier = 0.5\n"
      "[[optimizer.rules]]\npattern = \"embed.weight\"\ndecay_multiplier = 2.0\n";
  const Recipe r = recipe_from_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n" + rules, "test");
  const OptimizerConfig& c = r.optimizer;
  ASSERT_EQ(c.groups.rules.size(), 2u);
  EXPECT_EQ(c.groups.rules[0].optimizer, "adamw");
  EXPECT_EQ(c.groups.rules[0].lr_multiplier, 0.5);
  EXPECT_FALSE(c.groups.rules[0].decay_multiplier.has_value());
  EXPECT_EQ(c.groups.rules[1].decay_multiplier, 2.0);
  EXPECT_EQ(c.groups.others, "ademamix");
  EXPECT_EQ(c.muon.momentum_cooldown, 4);
  EXPECT_EQ(c.first_moment, ValueStorage::bf16);
  const std::string printed = print_config(r);
  for (const char* word : {"[optimizer.ademamix]", "qk_clip", "decay_multiplier", "bf16_stochastic"})
    EXPECT_NE(printed.find(word), std::string::npos) << word;
  EXPECT_EQ(print_config(recipe_from_toml(printed, "printed")), printed);
  const auto error = [&](const std::string& text) { return errors_of("", "[optimizer]\n" + text + "\n"); };
  EXPECT_NE(error("others = \"muon\"").find("muon needs matrices"), std::string::npos);
  EXPECT_NE(error("beta2 = 1.0").find("adamw.beta2: must be below 1, found 1"), std::string::npos);
  EXPECT_NE(error("qk_clip = -1.0").find("qk_clip: must not be negative, found -1"), std::string::npos);
  EXPECT_NE(error("muon_momentum_cooldown = 40").find("0 + 40 > 10"), std::string::npos);
}

}  // namespace ingot::batch_schedule_test
