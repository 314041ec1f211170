// A burn-in finds wrong bits, too little processor time and unsteady links; what is sound passes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/threads.h"
#include "measure/burn_in.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::burn_in_runs_test {

/// In a fifth of a second; this machine has other tests to run, so its speed is not judged.
BurnInOptions brief(const TempDir& folder) {
  BurnInOptions o;
  o.seconds = 0.2;
  o.memory_share = 0;
  o.disk_bytes = 100'000;
  o.folder = folder.path();
  o.least_window = o.least_share = o.least_link = 0;
  return o;
}

std::string text_of(const Finding& f) {
  return f.topic + ": " + f.text + " " + f.remedy;
}

TEST(BurnIn, ASoundMachinePasses) {
  const TempDir folder;
  const std::vector<Finding> found = burn_in(brief(folder));
  ASSERT_EQ(found.size(), 4U);
  for (const Finding& f : found) EXPECT_EQ(f.level, Finding::Level::ok) << text_of(f);
  EXPECT_EQ(found[2].text, "two patterns kept over 64.0 MiB");
}

TEST(BurnIn, OneWrongElementIsFoundInTheFirstProductAndInALaterOne) {
  const TempDir folder;
  for (const int64_t bad : {0, 2}) {
    BurnInOptions o = brief(folder);
    o.disturb = [&](std::span<float> product, int64_t round) {
      if (round == bad) product[12'345] += 1;
    };
    const std::vector<Finding> found = burn_in(o);
    EXPECT_EQ(found[0].level, Finding::Level::problem);
    EXPECT_NE(found[0].text.find(bad == 0 ? "which has 1 wrong elements" : "1 of "), std::string::npos)
        << text_of(found[0]);
    EXPECT_NE(found[0].remedy, "");
  }
}

TEST(BurnIn, WhatIsTooSlowIsNamed) {
  const TempDir folder;
  BurnInOptions o = brief(folder);
  o.least_share = 100;
  EXPECT_NE(burn_in(o)[0].remedy.find("quota"), std::string::npos);
  o.least_share = 0;
  o.least_window = 100;
  EXPECT_NE(burn_in(o)[0].remedy.find("not steady"), std::string::npos);
  o.least_window = 0;
  o.least_gflops = 1e9;
  const std::vector<Finding> found = burn_in(o);
  EXPECT_NE(found[0].remedy.find("are expected"), std::string::npos);
  EXPECT_EQ(found[1].level, Finding::Level::ok) << "the expectation is of fp32";
}

TEST(BurnIn, AFolderThatCannotBeWrittenIsAProblem) {
  const TempDir folder;
  BurnInOptions o = brief(folder);
  o.folder = folder / "missing";
  EXPECT_EQ(burn_in(o)[3].level, Finding::Level::problem);
}

TEST(BurnIn, RanksTestTheirMachinesAndLinks) {
  const TempDir folder;
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, [&](ThreadRank& self) {
      const std::vector<Finding> found = burn_in_ranks(self, brief(folder));
      ASSERT_EQ(found.size(), static_cast<size_t>(4 * ranks + 1));
      for (const Finding& f : found) EXPECT_EQ(f.level, Finding::Level::ok) << text_of(f);
      EXPECT_EQ(found.back().topic, "links");
      EXPECT_TRUE(found[static_cast<size_t>(4 * (ranks - 1))].topic.starts_with(
          fmt::format("rank {} on ", ranks - 1)));
    });
  }
  // Slower than any rank can be, beside the median.
  run_ranks(3, [&](ThreadRank& self) {
    BurnInOptions o = brief(folder);
    o.least_link = 1.5;
    EXPECT_EQ(burn_in_links(self, o).level, Finding::Level::problem);
  });
}

TEST(BurnIn, LevelsGrow) {
  for (int level = 2; level <= 4; ++level) {
    const BurnInOptions less = burn_in_level(level - 1), more = burn_in_level(level);
    EXPECT_GT(more.seconds, less.seconds);
    EXPECT_GE(more.memory_share, less.memory_share);
    EXPECT_GT(more.disk_bytes, less.disk_bytes);
  }
  EXPECT_THROW(burn_in_level(5), InternalError);
}

TEST(BurnIn, TheProgramSaysWhatItFoundByItsExitCode) {
  const TempDir folder;
  const ProcessResult r = run_process(
      {INGOT_BINARY, "burnin", folder.path(), "--seconds=0.2", "--disk=0", "--least-gflops=1e8", "--json"});
  EXPECT_EQ(r.exit_code, 1);
  const auto j = nlohmann::json::parse(r.output, nullptr, false);
  ASSERT_TRUE(j.is_object()) << r.output;
  EXPECT_EQ(j.at("works"), false);
  EXPECT_EQ(j.at("findings").size(), 3U);
  EXPECT_EQ(run_process({INGOT_BINARY, "burnin", "--level=5"}).exit_code, 2);
}

}  // namespace ingot::test::burn_in_runs_test
