// Replies as they are written and read: lines of rollouts.jsonl, and the replies that a checkpoint keeps.
#include <gtest/gtest.h>

#include "base/error.h"
#include "post/rl/rollout_counts.h"
#include "support/support.h"

namespace ingot::rollout_test {
namespace {

RolloutLine sample_line(int64_t step, int64_t group) {
  RolloutLine line;
  line.step = step, line.group = group, line.sample = 2;
  line.environment = "sort", line.problem = "sort/1/17@5", line.prompt = "Sort 3 1\n", line.difficulty = 5;
  line.text = "1 3", line.answer = "1 3", line.note = "", line.finish = "end_token";
  line.tokens = {"1", " 3", "\xff"};
  line.logprob = {-0.25F, -1.0F, -3.5F};
  line.forced = {2};
  line.reward = 1, line.bonus = 0.25, line.advantage = -0.75;
  line.parts = {{"answered", 1}, {"correct", 1}};
  return line;
}

TEST(RolloutLine, ReadsBack) {
  const RolloutLine line = sample_line(3, 1), back = parse_rollout_line(to_json_line(line), "here");
  EXPECT_EQ(back.step, 3);
  EXPECT_EQ(back.group, 1);
  EXPECT_EQ(back.sample, 2);
  EXPECT_EQ(back.problem, line.problem);
  EXPECT_EQ(back.prompt, line.prompt);
  EXPECT_EQ(back.tokens[1], " 3");
  EXPECT_EQ(back.tokens[2], "\xef\xbf\xbd");  // no UTF-8
  EXPECT_EQ(back.logprob, line.logprob);
  EXPECT_EQ(back.forced, line.forced);
  EXPECT_EQ(back.advantage, -0.75);
  EXPECT_EQ(back.bonus, 0.25);
  ASSERT_EQ(back.parts.size(), 2u);
  EXPECT_EQ(back.parts[1].name, "correct");
}

TEST(RolloutLine, StepsOfAFile) {
  const test::TempDir dir;
  std::string text;
  for (const int64_t step : {1, 1, 4}) text += to_json_line(sample_line(step, 0)) + "\n";
  test::write_text(dir / "rollouts.jsonl", text + "{\"step\": 5}\n{\"step");
  EXPECT_EQ(rollout_steps(real_file_system(), dir / "rollouts.jsonl"), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(read_rollouts(real_file_system(), dir / "rollouts.jsonl", 1).size(), 2u);
  EXPECT_TRUE(read_rollouts(real_file_system(), dir / "rollouts.jsonl", 2).empty());
  EXPECT_THROW(parse_rollout_line("{}", "here"), Error);
  EXPECT_THROW(parse_rollout_line("[", "here"), Error);
}

TEST(RolloutGroups, ContinueBitForBit) {
  std::vector<RolloutGroup> groups(1);
  RolloutGroup& g = groups[0];
  g.problem = environments::find_environment("sort")->make(1, 17, 4);
  g.prompt = {1, 2, 3};
  g.rollouts.resize(2);
  Rollout& r = g.rollouts[0];
  r.ids = {5, 6}, r.recorded = {-0.1F, -1e-30F}, r.forced = {false, true}, r.advantage = 1.0 / 3,
  r.weights = 9;
  r.routes = {0, 3, 1, kSkippedExpert};
  r.kept = {4, 5, 9}, r.kept_counts = {3, 0};
  g.rollouts[1].left_out = true;
  const std::vector<RolloutGroup> back = parse_groups(groups_json(groups), "here");
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].problem.id(), g.problem.id());
  EXPECT_EQ(back[0].prompt, g.prompt);
  ASSERT_EQ(back[0].rollouts.size(), 2u);
  EXPECT_EQ(back[0].rollouts[0].ids, r.ids);
  EXPECT_EQ(back[0].rollouts[0].recorded, r.recorded);
  EXPECT_EQ(back[0].rollouts[0].routes, r.routes);
  EXPECT_EQ(back[0].rollouts[0].kept, r.kept);
  EXPECT_EQ(back[0].rollouts[0].kept_counts, r.kept_counts);
  EXPECT_EQ(back[0].rollouts[0].forced, g.rollouts[0].forced);
  EXPECT_EQ(back[0].rollouts[0].advantage, 1.0 / 3);
  EXPECT_EQ(back[0].rollouts[0].weights, 9u);
  EXPECT_TRUE(back[0].rollouts[1].left_out);
  std::string fewer = groups_json(groups);
  fewer.replace(fewer.find("\"kept_counts\":[3,0]"), 19, "\"kept_counts\":[1,0]");
  EXPECT_THROW(parse_groups(fewer, "here"), Error);
  EXPECT_THROW(parse_groups("[{}]", "here"), Error);
  EXPECT_THROW(parse_groups("[", "here"), Error);
}

TEST(RolloutCounts, OfAllGroups) {
  std::vector<RolloutGroup> groups(3);
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].problem.environment = i == 2 ? "gcd" : "sort", groups[i].problem.difficulty = 3;
    groups[i].rollouts.resize(4);
    for (Rollout& r : groups[i].rollouts) r.ids = {1, 2}, r.reward = 0.5;
  }
  groups[0].rollouts[1].reward = 1, groups[0].rollouts[2].finish = FinishReason::max_tokens;
  groups[1].rollouts[3].left_out = true, groups[1].rollouts[3].reward = 7;
  const std::vector<RolloutCounts> c = count_rollouts({&groups[0], &groups[1], &groups[2]}, 9);
  ASSERT_EQ(c.size(), 2u);
  EXPECT_EQ(c[0].environment, "gcd");
  RolloutCounts expected{.step = 9, .environment = "sort", .difficulty = 3, .groups = 2, .without_signal = 1};
  expected.replies = 8, expected.failed = 1, expected.reward = 1 + 6 * 0.5, expected.tokens = 16;
  expected.truncated = 1;
  EXPECT_EQ(c[1], expected);
  EXPECT_DOUBLE_EQ(c[1].pass_rate(), 4.0 / 7);
  EXPECT_EQ(parse_rollout_counts(to_json_line(c[1]), "here"), c[1]);
  for (const char* bad : {"{}", "[", "3", R"({"step": 1})"})
    EXPECT_THROW(parse_rollout_counts(bad, "here"), Error);
  expected.truncated = 9;
  EXPECT_THROW(parse_rollout_counts(to_json_line(expected), "here"), Error);
}

TEST(RolloutGroup, CountsRepliesThatWereJudged) {
  RolloutGroup g;
  g.rollouts.resize(3);
  g.rollouts[0].reward = 1;
  g.rollouts[1].reward = 1;
  g.rollouts[2].left_out = true;
  EXPECT_EQ(g.pass_rate(), 1);
  EXPECT_FALSE(g.signal());
  g.rollouts[2].left_out = false;
  EXPECT_TRUE(g.signal());
  EXPECT_EQ(g.rewards().size(), 3u);
}

}  // namespace
}  // namespace ingot::rollout_test
