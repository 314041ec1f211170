// `ingot rollouts`: the replies of a step as text, in colours, and as JSON, and the counts of a whole run;
// what is not there is named.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "post/rl/rollout_counts.h"
#include "support/tiny_run.h"

namespace ingot::test::rollouts_test {

struct RolloutsCommand : ::testing::Test {
  const TempDir run;
  void SetUp() override {
    std::string text;
    for (const int64_t step : {2, 5})
      for (int64_t i = 0; i < 4; ++i) {
        RolloutLine l;
        l.step = step, l.group = i / 2, l.sample = i % 2;
        l.environment = "sort", l.problem = "sort/1/9@3", l.prompt = "sort 3 1 2", l.difficulty = 3;
        l.text = i % 2 == 0 ? "1 2 3" : "3\x1b[31m";
        l.tokens = {i % 2 == 0 ? "1 2" : "3", " end"}, l.logprob = {-0.1F, -4.0F};
        if (i == 3) l.forced = {0};
        l.finish = "end_token", l.reward = i % 2 == 0 ? 1 : 0, l.advantage = i % 2 == 0 ? 1.5 : -1.5;
        if (i == 1) l.note = "not the digits", l.bonus = -0.25;
        text += to_json_line(l) + "\n";
      }
    write_text(run / "rollouts.jsonl", text);
  }
  ProcessResult show(std::vector<std::string> more) const {
    std::vector<std::string> command = {INGOT_BINARY, "rollouts", "show", run.path()};
    command.insert(command.end(), more.begin(), more.end());
    return run_process(command);
  }
};

TEST_F(RolloutsCommand, TheLastStepIsShown) {
  const ProcessResult r = show({});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  for (const char* expected :
       {"group 0  sort/1/9@3  difficulty 3", "sort 3 1 2", "reply 0  reward 1  advantage +1.500",
        "reward 0 -0.250", "(not the digits)", "group 1", "1 2 3"})
    EXPECT_NE(r.output.find(expected), std::string::npos) << expected << "\n" << r.output;
  EXPECT_EQ(r.output.find("\x1b[1;32m"), std::string::npos) << "colours in a pipe";
}

TEST_F(RolloutsCommand, ColoursSayWhatWasTaught) {
  const ProcessResult r = show({"--step=2", "--colour=always"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("\x1b[1;32m1 2\x1b[0m"), std::string::npos) << r.output;  // likelier
  EXPECT_NE(r.output.find("\x1b[1;31m\x1b[4m end\x1b[0m"), std::string::npos)
      << r.output;                                                             // less, unlikely token
  EXPECT_NE(r.output.find("\x1b[2m3\x1b[0m"), std::string::npos) << r.output;  // forced
  EXPECT_EQ(show({"--colour=never"}).output.find("\x1b[1;32m"), std::string::npos);
  EXPECT_EQ(show({"--colour=blue"}).exit_code, 1);
}

TEST_F(RolloutsCommand, AsDataAndByGroup) {
  const ProcessResult r = show({"--step=5", "--group=1", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const auto list = nlohmann::json::parse(r.output);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["group"], 1);
  EXPECT_EQ(list[1]["forced"][0], 0);
  EXPECT_EQ(list[0]["tokens"][0], "1 2");
}

TEST_F(RolloutsCommand, StatisticsByEnvironmentAndDifficulty) {
  std::string text;
  for (int64_t step = 11; step <= 18; ++step) {
    RolloutCounts c{.step = step, .environment = "sort", .difficulty = 3, .groups = 2};
    c.without_signal = step < 13 ? 1 : 0, c.replies = 8, c.failed = 1, c.reward = step < 15 ? 0 : 7;
    c.tokens = 40, c.truncated = 2;
    text += to_json_line(c) + "\n";
    if (step != 18) continue;
    c.difficulty = 4, c.groups = 1, c.without_signal = 0, c.replies = c.failed = 4, c.reward = 0;
    text += to_json_line(c) + "\n" + R"({"step": 18, "groups": -1})" + "\n";
  }
  write_text(run / "rollout_counts.jsonl", text);
  const ProcessResult plain = run_process({INGOT_BINARY, "rollouts", "statistics", run.path()});
  ASSERT_EQ(plain.exit_code, 0) << plain.output;
  for (const char* expected :
       {"sort                 3      16     0.500       12 %     5.0     25.0 %       8",
        " 0.000  0.000  1.000  1.000", "11     13     15     17", "damaged"})
    EXPECT_NE(plain.output.find(expected), std::string::npos) << expected << "\n" << plain.output;
  write_text(run / "rollout_counts.jsonl", text.substr(0, text.rfind("{\"step")));
  const ProcessResult r = run_process({INGOT_BINARY, "rollouts", "statistics", run.path(), "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const auto j = nlohmann::json::parse(r.output);
  ASSERT_EQ(j["rows"].size(), 2u);
  EXPECT_EQ(j["rows"][0]["without_signal"], 2);
  EXPECT_EQ(j["rows"][0]["pass_rate"], 0.5);
  EXPECT_EQ(j["rows"][1]["difficulty"], 4);
  EXPECT_TRUE(j["rows"][1]["pass_rate"].is_null()) << "no verdict";
  EXPECT_TRUE(j["rows"][1]["pass_rate_over_steps"][0].is_null());
  EXPECT_EQ(j["first_steps"][1], 13);
  EXPECT_EQ(j["last_step"], 18);
  const TempDir empty;
  const ProcessResult none = run_process({INGOT_BINARY, "rollouts", "statistics", empty.path()});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.output.find("no rollout_counts.jsonl"), std::string::npos) << none.output;
}

TEST_F(RolloutsCommand, WhatIsNotThereIsNamed) {
  const ProcessResult step = show({"--step=3"});
  EXPECT_EQ(step.exit_code, 1);
  EXPECT_NE(step.output.find("no replies of step 3"), std::string::npos) << step.output;
  EXPECT_NE(step.output.find("2 5"), std::string::npos) << step.output;
  EXPECT_NE(show({"--group=7"}).output.find("no group 7"), std::string::npos);
  EXPECT_EQ(show({"--step=0"}).exit_code, 2);
  const TempDir empty;
  const ProcessResult none = run_process({INGOT_BINARY, "rollouts", "show", empty.path()});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.output.find("no rollouts.jsonl"), std::string::npos) << none.output;
}

}  // namespace ingot::test::rollouts_test
