// train/run_layout: what [parallel] and a number of ranks make, and what is refused, with the arithmetic.
#include "train/run_layout.h"

#include <gtest/gtest.h>

namespace ingot::run_layout_test {

Recipe recipe_of(const std::string& parallel, const std::string& stage = "") {
  return recipe_from_toml(
      "[[data.sources]]\nname = \"a\"\npath = \"b\"\n[[phases]]\n" + stage + "\n[parallel]\n" + parallel,
      "test");
}

/// The grid of so many ranks and the shares of all phases, or the first refusal.
std::string laid_out(const std::string& parallel, int ranks, const std::string& stage = "") {
  try {
    Recipe r = recipe_of(parallel, stage);
    const Grid grid = grid_of(r.parallel, ranks);
    r.parallel.data = grid.size(GridAxis::dp);
    r.fit_batches();
    require_shares(r);
    return grid.str();
  } catch (const Error& e) {
    return e.what();
  }
}

void expect_refused(const std::string& why, const std::string& parallel, int ranks,
                    const std::string& stage = "") {
  const std::string found = laid_out(parallel, ranks, stage);
  EXPECT_NE(found.find(why), std::string::npos) << found;
}

TEST(RunLayout, FollowsFromTheFieldsAndTheRanks) {
  EXPECT_EQ(laid_out("", 1), "pp1 dp1 cp1 tp1 | pp1 edp1 ep1 etp1");
  EXPECT_EQ(laid_out("expert = 2", 4), "pp1 dp4 cp1 tp1 | pp1 edp2 ep2 etp1");
  EXPECT_EQ(laid_out("tensor = 2\nexpert = 2", 4), "pp1 dp2 cp1 tp2 | pp1 edp1 ep2 etp2")
      << "experts whole on each tensor rank";
  EXPECT_EQ(laid_out("pipeline = 2\ntensor = 2", 4, "micro_batch = 4"),
            "pp2 dp1 cp1 tp2 | pp2 edp1 ep1 etp2");
  EXPECT_EQ(laid_out("context = 2\nexpert = 4", 8), "pp1 dp4 cp2 tp1 | pp1 edp2 ep4 etp1");
  EXPECT_EQ(laid_out("context = 4\ncontext_form = \"gather\"\ncontext_inner = 2", 4),
            "pp1 dp1 cp4 tp1 | pp1 edp4 ep1 etp1");
  EXPECT_EQ(laid_out("tensor = 2\nsequence = true\nexpert = 4", 4), "pp1 dp2 cp1 tp2 | pp1 edp1 ep4 etp1");
  EXPECT_EQ(laid_out("tensor = 2\nsequence = true\nexpert_tensor = 2", 4),
            "pp1 dp2 cp1 tp2 | pp1 edp2 ep1 etp2");
}

TEST(RunLayout, HowLongRanksWaitIsTheRecipes) {
  ParallelConfig p;
  EXPECT_EQ(comm_limits(p).report_seconds, CommLimits().report_seconds);
  EXPECT_EQ(comm_limits(p).abort_seconds, CommLimits().abort_seconds);
  p.report_after = 90, p.abort_after = 1800;
  EXPECT_EQ(comm_limits(p).report_seconds, 90);
  EXPECT_EQ(comm_limits(p).abort_seconds, 1800);
  expect_refused("parallel.report_after: is 700 s, but the run ends after abort_after = 600 s",
                 "report_after = 700", 2);
}

TEST(RunLayout, WhatDoesNotDivideIsRefused) {
  expect_refused("parallel.sequence: there are no tensor ranks", "sequence = true", 2);
  expect_refused("parallel.expert_tensor: without sequence parallelism", "tensor = 2\nexpert_tensor = 2", 4);
  expect_refused("parallel.expert: must be at least 1, found 0", "expert = 0", 2);
  expect_refused("3 ranks do not divide into groups of parallel.tensor = 2", "tensor = 2", 3);
  expect_refused("6 ranks do not divide into groups of parallel.context = 2 x parallel.tensor = 2",
                 "context = 2\ntensor = 2", 6);
  expect_refused("experts over ep3 x etp1 = 3 do not tile them", "expert = 3", 4);
  expect_refused("a batch of 16 sequences does not divide among 3 data ranks", "", 3);
  expect_refused("255 tokens of each sequence do not divide among 2 tensor ranks",
                 "tensor = 2\nsequence = true", 2, "sequence = 255");
  expect_refused("sequences of 250 tokens do not divide into 4 chunks, two for each of 2 context ranks",
                 "context = 2", 2, "sequence = 250");
  expect_refused("parallel.context_inner: in the form heads all 4 context ranks exchange heads",
                 "context = 4\ncontext_inner = 2", 4);
  for (const char* inner : {"3", "4", "8"})
    expect_refused(fmt::format("4 context ranks do not make several groups of {}", inner),
                   fmt::format("context = 4\ncontext_form = \"ring\"\ncontext_inner = {}", inner), 4);
  expect_refused("126 tokens of each sequence do not divide among 4 tensor ranks",
                 "context = 2\ntensor = 4\nsequence = true", 8, "sequence = 252");
  expect_refused("parallel.node_ranks: a hierarchical dispatch must know",
                 "expert = 2\ndispatch = \"hierarchical\"", 2);
  expect_refused("parallel.node_ranks: is for dispatch = hierarchical only", "expert = 2\nnode_ranks = 2", 2);
  expect_refused("parallel.dispatch_capacity: must be 0 or at least 1, found 0.5",
                 "expert = 2\ndispatch_capacity = 0.5", 2);
  expect_refused("parallel.dispatch_capacity: must be 0 or at least 1, found nan",
                 "expert = 2\ndispatch_capacity = nan", 2);
  expect_refused("parallel.dispatch_drop: a capacity for any routing drops nothing",
                 "expert = 2\ndispatch_drop = true", 2);
  expect_refused("leave dispatch_bf16 alone", "expert = 2\ndispatch = \"all_gather\"\ndispatch_bf16 = true",
                 2);
  expect_refused("leave dispatch_capacity alone",
                 "expert = 2\ndispatch = \"all_gather\"\ndispatch_capacity = 2.0", 2);
  expect_refused("parallel.dispatch: every rank has all experts", "dispatch = \"all_gather\"", 2);
  expect_refused("parallel.schedule: zero_bubble is of pipelines", "schedule = \"zero_bubble\"", 1);
  expect_refused("parallel.chunks: there is no pipeline", "chunks = 2", 1);
  expect_refused("parallel.schedule: 1f1b has one chunk per rank", "pipeline = 2\nchunks = 2", 2);
  expect_refused("parallel.chunks: the layout says",
                 "pipeline = 2\nchunks = 2\nschedule = \"merged\"\nlayout = \"Et|tL\"", 2);
  expect_refused(
      "a batch of 16 sequences over 2 data ranks is 1 micro-batch of 8, but a pipeline of 2 stages needs 2 "
      "at least",
      "pipeline = 2", 4);
  expect_refused("the last group has 1 micro-batches, fewer than stages",
                 "pipeline = 3\nchunks = 2\nschedule = \"interleaved\"", 3,
                 "micro_batch = 4\n[model]\nlayers = 6");
  expect_refused("4 layers over 8 pipeline ranks with 1 chunks: a stage would have no layer", "pipeline = 8",
                 8, "micro_batch = 2\n[model]\nlayers = 4");
}

TEST(RunLayout, IsDescribed) {
  Recipe r = recipe_of("pipeline = 2\ntensor = 2\nsequence = true\nexpert = 4",
                       "micro_batch = 2\n[model]\nlayers = 4");
  r.parallel.data = 2;
  const std::vector<std::string> expected{
      "8 = data 2 x pipeline 2 x tensor 2 (with sequence parallelism)",
      "pipeline Et*2|t*2L, schedule 1f1b: pipeline bubble 25 % of the compute time",
      "no experts; optimizer state replicated; memory and time are per rank"};
  EXPECT_EQ(describe_layout(r), expected);
  r = recipe_of("pipeline = 2\nschedule = \"merged\"\nshard = \"full\"",
                "micro_batch = 2\n[model]\nlayers = 4");
  r.parallel.data = 2;
  EXPECT_EQ(describe_layout(r)[2],
            "no experts; optimizer state sharded with weights and gradients; memory and time are per rank");
  r = recipe_of("context = 4\ncontext_form = \"ring\"\ncontext_inner = 2");
  r.parallel.data = 1;
  EXPECT_EQ(describe_layout(r)[0], "4 = data 1 x context 4 (ring, heads over 2)");
}

}  // namespace ingot::run_layout_test
