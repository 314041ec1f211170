// The search for a layout: what it names fits and is ordered, the answer is the same each time, and every
// family that is not among the best has a reason.
#include "plan/search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace ingot::test::search_test {

Recipe dense(const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {"--model.preset=llama-small", "--model.vocab=512",
                                  "--run.precision=bf16",       "--phases.0.batch=16",
                                  "--phases.0.sequence=128",    "--optimizer.matrices=adamw"};
  all.insert(all.end(), more.begin(), more.end());
  return recipe_from_tree(parse_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n", "test"), all);
}

Cluster cluster(const char* memory) {
  return cluster_from_text(fmt::format("name = \"small\"\n[device]\nmemory = \"{}\"\nbandwidth = 3000.0\n"
                                       "launch_us = 4.0\nrates = {{ bf16 = 900.0, f32 = 60.0 }}\n"
                                       "[[links]]\nranks = 4\ngb_per_s = 300.0\nlatency_us = 2.0\n"
                                       "[[links]]\ngb_per_s = 45.0\nlatency_us = 5.0\n",
                                       memory),
                           "test");
}

TEST(Search, NamesLayoutsThatFitInTheOrderOfTheirSpeed) {
  const Cluster here = cluster("80GB");
  const SearchResult found = search_layouts(dense(), 8, here);
  ASSERT_FALSE(found.best.empty());
  EXPECT_EQ(found.tried, found.refused + found.too_large + found.too_slow + found.simulated);
  for (size_t i = 0; i < found.best.size(); ++i) {
    EXPECT_LE(found.best[i].bytes, here.device_bytes());
    EXPECT_LE(found.best[i].tokens_per_second, 1.011 * found.best.front().tokens_per_second)
        << "but for ties";
  }
  for (const auto& [family, reason] : found.rejected) {
    EXPECT_FALSE(reason.empty()) << family;
    EXPECT_TRUE(std::none_of(found.best.begin(), found.best.end(),
                             [&](const auto& l) { return l.family == family; }));
  }
  const std::string text = to_text(found);
  EXPECT_EQ(text, to_text(search_layouts(dense(), 8, here))) << "the same each time";
  EXPECT_NE(text.find("the first: --parallel."), std::string::npos) << text;
}

/// A plan of the layout that is first, by its fields alone, takes the time that the search says.
TEST(Search, TheFieldsOfALayoutAreThatLayout) {
  const Cluster here = cluster("80GB");
  const SearchResult::Layout first = search_layouts(dense(), 8, here).best.front();
  const Recipe recipe = dense(first.fields);
  const RunTime time = time_run(recipe, plan_ranks(recipe, {8, 1}), here);
  EXPECT_NEAR(time.step.seconds, first.step_seconds, 1e-9 + 1e-6 * first.step_seconds);
}

TEST(Search, WhatFitsNowhereIsRefusedWithTheNearest) {
  try {
    search_layouts(dense(), 8, cluster("1MB"));
    FAIL() << "found";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no layout of 8 ranks fits 'small'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.hint()).find("nearest: "), std::string::npos) << e.hint();
    EXPECT_NE(std::string(e.hint()).find(" of a device's "), std::string::npos) << e.hint();
  }
}

}  // namespace ingot::test::search_test
