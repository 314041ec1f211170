// Advice: what it names as a limit adds up, each remedy changes the recipe and has the price of a plan with
// its fields, and what it calls faster or smaller is.
#include "plan/advice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "support/small_cluster.h"

namespace ingot::test::advice_test {

using Fields = std::vector<std::string>;

Recipe recipe(const Fields& layout, const Fields& more) {
  Fields all = {"--model.preset=llama-small", "--model.vocab=512",       "--run.precision=bf16",
                "--phases.0.batch=64",        "--phases.0.sequence=128", "--phases.0.micro_batch=2",
                "--optimizer.matrices=adamw", "--phases.0.name=pretrain"};
  all.insert(all.end(), layout.begin(), layout.end());
  all.insert(all.end(), more.begin(), more.end());
  return recipe_from_tree(parse_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n", "test"), all);
}

Advice advice_for(const Fields& layout, const Cluster& here) {
  return advise([&](const Fields& more) { return recipe(layout, more); }, "", 8, here);
}

std::vector<Remedy> all_of(const Advice& a) {
  std::vector<Remedy> all = a.faster;
  all.insert(all.end(), a.smaller.begin(), a.smaller.end());
  all.insert(all.end(), a.others.begin(), a.others.end());
  return all;
}

bool sets(const Remedy& r, const std::string& field) {
  return std::find(r.fields.begin(), r.fields.end(), field) != r.fields.end();
}

TEST(Advice, TheLimitsOfTimeAddUpToTheStep) {
  for (const Fields& layout : {Fields{}, Fields{"--parallel.tensor=2"}, Fields{"--parallel.pipeline=2"}}) {
    double sum = 0;
    for (const Advice::Limit& l : advice_for(layout, small_cluster("80GB")).limits)
      if (l.name != "memory" && l.name != "launches") sum += l.share;
    EXPECT_LE(sum, 1 + 1e-9);
    EXPECT_GE(sum, 0.97) << "without those below half a percent";
  }
}

TEST(Advice, EveryRemedyHasThePriceOfAPlanWithItsFields) {
  const Fields layout = {"--parallel.tensor=2", "--parallel.pipeline=2"};
  const Cluster here = small_cluster("80GB");
  const Advice a = advice_for(layout, here);
  EXPECT_GT(all_of(a).size(), 10u);
  int priced = 0;
  for (const Remedy& r : all_of(a)) {
    if (!r.refused.empty()) {
      EXPECT_THROW(plan_ranks(recipe(layout, r.fields), {8, 1}), Error)
          << fmt::format("{}", r.fields.front());
      continue;
    }
    ++priced;
    const Recipe changed = recipe(layout, r.fields);
    const RunPlan plan = plan_ranks(changed, {8, 1});
    const RunTime time = time_run(plan, here);
    EXPECT_NEAR(time.step.seconds, r.step_seconds, 1e-6 * r.step_seconds) << r.fields.front();
    const RankMemory& m = plan.fullest().plan.memory;
    EXPECT_EQ(m.total() - m.checkpoint, r.bytes) << r.fields.front();
  }
  EXPECT_GT(priced, 8);
}

TEST(Advice, WhatIsFasterFitsAndWhatIsSmallerNeedsLess) {
  const Advice a = advice_for({"--parallel.tensor=2"}, small_cluster("80GB"));
  ASSERT_FALSE(a.faster.empty());
  for (const Remedy& r : a.faster) {
    EXPECT_GT(r.tokens_per_second, a.tokens_per_second);
    EXPECT_LE(r.bytes, a.capacity);
  }
  ASSERT_FALSE(a.smaller.empty());
  for (const Remedy& r : a.smaller) EXPECT_LT(r.bytes, a.bytes);
  // A model of this size gains from fewer tensor ranks.
  EXPECT_TRUE(std::any_of(a.faster.begin(), a.faster.end(),
                          [](const Remedy& r) { return sets(r, "--parallel.tensor=1"); }));
}

TEST(Advice, OfWhatDoesNotFitItNamesWhatDoes) {
  const int64_t needs = advice_for({}, small_cluster("80GB")).bytes;
  const std::string less = fmt::format("{}MB", (needs * 3 / 4) / 1000000);
  const Advice a = advice_for({}, small_cluster(less.c_str()));
  EXPECT_GT(a.bytes, a.capacity);
  EXPECT_EQ(a.limits.front().name, "memory");
  ASSERT_FALSE(a.faster.empty());
  for (const Remedy& r : a.faster) EXPECT_LE(r.bytes, a.capacity);
  EXPECT_NE(to_text(a).find("what fits"), std::string::npos);
}

/// A remedy that is already there is none. A recipe may refuse one, and does not then say the same.
TEST(Advice, EveryRemedyChangesTheRecipe) {
  for (const Fields& layout :
       {Fields{}, Fields{"--parallel.tensor=2", "--parallel.sequence=true", "--parallel.shard=full"},
        Fields{"--parallel.pipeline=2", "--parallel.chunks=2", "--parallel.schedule=interleaved"},
        Fields{"--memory.recompute=[\"activation\", \"add_norm.h\"]", "--optimizer.gradient=bf16"}}) {
    const Recipe base = recipe(layout, {});
    int refused = 0;
    for (const Remedy& r : possible_remedies(base, "pretrain", 8, small_cluster("80GB"))) {
      try {
        EXPECT_NE(print_config(recipe(layout, r.fields)), print_config(base)) << r.fields.front();
      } catch (const Error&) {
        ++refused;
      }
    }
    EXPECT_LE(refused, 3);
  }
}

}  // namespace ingot::test::advice_test
