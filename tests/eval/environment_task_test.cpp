// Problems of environments as tasks: what is asked, how it is judged, what is refused.
#include "eval/environment_task.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "environments/environment.h"
#include "eval/run_task.h"
#include "support/support.h"

namespace ingot::test::environment_task_test {

/// Answers from a table of questions: right, wrong or without an answer, sample by sample.
class TableModel : public TaskModel {
 public:
  std::map<std::string, std::vector<std::string>> answers;
  int64_t context() const override { return 1000; }
  std::vector<int32_t> encode(const std::string& text) const override { return {text.begin(), text.end()}; }
  std::optional<int32_t> begin() const override { return {}; }
  int32_t prefix() const override { return 0; }
  std::vector<ContinuationScore> score(std::span<const ScoreRequest>) override { return {}; }
  std::vector<std::vector<Answer>> answer(std::span<const AnswerRequest> requests,
                                          const TaskSampling& sampling) override {
    std::vector<std::vector<Answer>> all;
    for (const AnswerRequest& r : requests) {
      const std::string asked =
          r.turns.empty() ? std::string(r.prompt.begin(), r.prompt.end()) : r.turns.back().content;
      std::vector<Answer> row;
      for (int64_t i = 0; i < sampling.samples; ++i)
        row.push_back({answers.at(asked).at(static_cast<size_t>(i)), 1, false});
      all.push_back(row);
    }
    return all;
  }
  ChatPrompt chat_prompt(std::span<const ChatTurn> turns, ThinkingMode) const override {
    return {encode(turns.back().content), turns.back().content, false};
  }
  ParsedAnswer parse_answer(const std::string& text, bool) const override { return {"", text}; }
};

TEST(EnvironmentTask, AsksHeldOutProblemsOfAllDifficultiesInTurn) {
  const Task task = environment_task("sort@3-5", 9);
  ASSERT_EQ(task.rows().size(), 9u);
  EXPECT_EQ(task.original_rows(), 200);
  for (size_t i = 0; i < 9; ++i) {
    const environments::Problem problem = environments::problem_of(task.rows()[i]["id"]);
    EXPECT_EQ(problem.difficulty, 3 + static_cast<int64_t>(i) % 3);
    EXPECT_GE(problem.seed, environments::kHeldOutSeeds);
    EXPECT_EQ(task.rows()[i]["prompt"], *problem.prompt.messages[0].content + "\n");
  }
  EXPECT_EQ(task.name(), "sort_3-5");
  EXPECT_EQ(environment_task("sort@3-5", 9).rows(), task.rows());
  EXPECT_EQ(environment_task("chain@2+text", 3).config().chat.enabled, false);
}

TEST(EnvironmentTask, RewardsAndMajorityAreTheVerifiers) {
  const Task task = environment_task("countdown@1", 4, 3);
  TableModel model;
  for (size_t i = 0; i < 4; ++i) {
    const std::string right = task.rows()[i]["answer"];
    const std::vector<std::string> rows[] = {
        {right, "\\boxed{" + right + "}", "1+1"},  // two say the same in two ways
        {"1+1", "1+1", right},
        {"", "", right},  // what has no answer has no vote
        {"1", "2", "3"}};
    model.answers[task.rows()[i]["messages"][0]["content"]] = rows[i];
  }
  const TaskResult result = run_task(task, model);
  EXPECT_NEAR(result.find("avg@3")->value, (2.0 / 3 + 1.0 / 3 + 1.0 / 3 + 0) / 4, 1e-12);
  EXPECT_EQ(result.find("majority@3")->value, 0.5);
  EXPECT_EQ(result.find("best@3")->value, 0.75);
}

TEST(EnvironmentTask, PlainTextIsReadAsItWasTrained) {
  const Task task = environment_task("chain@1+text", 3);
  TableModel model;
  for (size_t i = 0; i < 3; ++i)
    model.answers[task.rows()[i]["prompt"]] = {
        i == 0 ? "1+1=2\nanswer: 99\n"
               : "so it is\nanswer: " + task.rows()[i]["answer"].get<std::string>() + "\n"};
  EXPECT_NEAR(run_task(task, model).find("reward")->value, 2.0 / 3, 1e-12);
}

TEST(EnvironmentTask, TheSwitchEndsThePrompt) {
  const Task task = environment_task("chain@1+switch", 8);
  struct : TableModel {
    ParsedAnswer parse_answer(const std::string& text, bool) const override {
      const size_t end = text.find("</think>");
      return {text.substr(7, end - 7), text.substr(end + 8)};
    }
  } model;  // thinks always, and where it is told not to says nothing more
  for (const auto& row : task.rows()) {
    const std::string prompt = row["messages"][0]["content"];
    model.answers[prompt + " /think"] = {"<think>so</think>1"};
    model.answers[prompt + " /no_think"] = {"<think>so</think>"};
  }
  const TaskResult result = run_task(task, model);
  const double asked = result.find("think_follow")->value;
  EXPECT_GT(asked, 0);
  EXPECT_LT(asked, 1);
  EXPECT_EQ(result.find("well_formed")->value, asked);
  EXPECT_EQ(task.name(), "chain_1_switch");
  EXPECT_NE(message_of([] { environment_task("chain@1+switch", 8, 4); }).find("4 samples"),
            std::string::npos);
}

TEST(EnvironmentTask, FilesSayMoreAndAreChecked) {
  const auto parse = [](const std::string& more) {
    return Task::parse("kind = \"generation\"\n" + more, "d/t.toml", "", "d/t.toml");
  };
  const Task task = parse(
      "[environment]\nname = \"sort\"\nleast = 4\nmost = 4\nproblems = 7\nseed = 3\n[chat]\nenabled = "
      "true\n");
  EXPECT_EQ(task.rows().size(), 7u);
  EXPECT_EQ(task.config().metrics, std::vector<std::string>{"reward"});
  EXPECT_EQ(environments::problem_of(task.rows()[0]["id"]).seed, environments::kHeldOutSeeds + 3);
  for (const auto& [more, part] : std::map<std::string, std::string>{
           {"data = \"x\"\n[environment]\nname = \"sort\"\n", "without data"},
           {"metrics = [\"exact_match\"]\n[environment]\nname = \"sort\"\n", "have a reward"},
           {"data = \"x\"\ntarget = \"1\"\nmetrics = [\"reward\"]\n", "have a reward"},
           {"[environment]\nname = \"srot\"\n", "did you mean 'sort'?"},
           {"[environment]\nname = \"sort\"\nleast = 9\nmost = 4\n", "at most environment.most"},
           {"[environment]\nname = \"sort\"\nproblems = 0\n", "problems"},
           {"[environment]\nname = \"sort\"\nmost = 99\n", "99"}})
    EXPECT_NE(message_of([&] { parse(more); }).find(part), std::string::npos)
        << more << message_of([&] { parse(more); });
  for (const char* bad : {"sort@", "sort@x", "sort@5-3", "sort@1-99", "srot@3"})
    EXPECT_NE(message_of([&] { environment_task(bad, 0); }), "") << bad;
}

}  // namespace ingot::test::environment_task_test
