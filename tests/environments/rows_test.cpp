// Rows for training in every form, and files of rows as environments.
#include "environments/rows.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file_system.h"
#include "environments/row_environment.h"
#include "support/support.h"

namespace ingot::environments::rows_test {

using RowJson = nlohmann::json;

using test::message_of;

RowRequest request(RowForm form) {
  RowRequest r;
  r.mix = {problem_mix("sort:3-6"), problem_mix("chain:2*3")};
  r.form = form;
  return r;
}

TEST(ProblemRows, AreFunctionsOfTheirNumberAndRightByTheVerifier) {
  for (const RowForm form : {RowForm::text, RowForm::messages, RowForm::completion, RowForm::prompts})
    for (uint64_t number = 0; number < 20; ++number) {
      const std::string text = problem_row(request(form), number);
      EXPECT_EQ(text, problem_row(request(form), number));
      const RowJson row = RowJson::parse(text);
      const Problem problem = problem_of(row["id"]);
      const std::string prompt = *problem.prompt.messages[0].content;
      const auto judged = [&](const std::string& content) {
        return find_environment(problem.environment)->judge(problem, content).reward;
      };
      if (form == RowForm::text) {
        EXPECT_TRUE(row["text"].get<std::string>().starts_with(prompt + "\n"));
        EXPECT_EQ(judged(row["text"]), 1) << row["text"];
      } else if (form == RowForm::completion) {
        EXPECT_EQ(row["prompt"], prompt + "\n");
        EXPECT_EQ(judged(row["completion"]), 1);
      } else if (form == RowForm::prompts) {
        EXPECT_EQ(row["prompt"][0]["content"], prompt);
        EXPECT_EQ(judged(row["answer"]), 1);
      } else {
        const chat::Conversation c = chat::read_conversation(text, "row");
        ASSERT_EQ(c.messages.size(), 2u);
        EXPECT_EQ(*c.messages[0].content, prompt);
        EXPECT_TRUE(c.messages[1].reasoning_content);
        EXPECT_EQ(judged(*c.messages[1].content), 1);
      }
    }
}

TEST(ProblemRows, SharesStylesAndNoThinkAreDrawn) {
  RowRequest r = request(RowForm::messages);
  r.styles = {TraceStyle::plain, TraceStyle::checked};
  r.no_think = 0.25;
  std::map<std::string, int> environments;
  std::set<int64_t> difficulties;
  int silent = 0, by_system = 0, by_user = 0, asked_to_think = 0, checked = 0;
  for (uint64_t number = 0; number < 400; ++number) {
    const RowJson row = RowJson::parse(problem_row(r, number));
    const Problem problem = problem_of(row["id"]);
    ++environments[problem.environment];
    if (problem.environment == "sort") difficulties.insert(problem.difficulty);
    const RowJson& messages = row["messages"];
    const bool no_think = !messages.back().contains("reasoning_content");
    const std::string prompt = *problem.prompt.messages[0].content;
    const std::string turn = messages[messages.size() - 2]["content"];
    silent += no_think ? 1 : 0;
    by_system += messages[0]["role"] == "system" ? 1 : 0;
    by_user += turn == prompt + " /no_think" ? 1 : 0;
    asked_to_think += turn == prompt + " /think" ? 1 : 0;
    EXPECT_EQ(no_think, messages[0]["role"] == "system" || turn == prompt + " /no_think") << row;
    if (messages[0]["role"] == "system") {
      EXPECT_EQ(messages[0]["content"], "/no_think");
      EXPECT_EQ(turn, prompt);
    }
    if (!no_think && messages.back()["reasoning_content"].get<std::string>().find('?') != std::string::npos)
      ++checked;
  }
  EXPECT_NEAR(environments["chain"], 300, 35);
  EXPECT_NEAR(environments["sort"], 100, 35);
  EXPECT_EQ(difficulties, (std::set<int64_t>{3, 4, 5, 6}));
  EXPECT_NEAR(silent, 100, 35);  // four standard deviations
  EXPECT_NEAR(by_system, 50, 27);
  EXPECT_NEAR(by_user, 50, 27);
  EXPECT_NEAR(asked_to_think, 50, 27);
  EXPECT_NEAR(checked, 150, 40);
}

TEST(ProblemRows, MixesSayWhatIsWrongWithThem) {
  EXPECT_EQ(problem_mix("sort").difficulty, find_environment("sort")->difficulty());
  EXPECT_EQ(problem_mix("sort:5").difficulty, (DifficultyRange{5, 5}));
  EXPECT_EQ(problem_mix("sort:3-8*0.5").share, 0.5);
  for (const char* bad :
       {"sort:", "sort:x", "sort:5-3", "sort:3-", "sort*0", "sort*-1", "sort*nan", "sort*", "sort:3*x"})
    EXPECT_NE(message_of([&] { problem_mix(bad); }).find("NAME:LEAST-MOST"), std::string::npos) << bad;
  EXPECT_NE(message_of([] { problem_mix("sort:1-99"); }).find("has 2 to 24"), std::string::npos);
  EXPECT_NE(message_of([] { problem_mix("srot:2"); }).find("did you mean 'sort'?"), std::string::npos);
}

TEST(RowEnvironment, ReadsGsm8kVerlAndTrl) {
  const test::TempDir folder;
  const std::string path = folder / "rows.jsonl";
  test::write_text(path, R"({"question": "16 - 3 - 4 eggs at $2?",)"
                         R"( "answer": "So <<16-3-4=9>>9.\nThat is $<<9*2=18>>18.\n#### 18"}
{"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1/2 + 1/4?"}],)"
                         R"( "data_source": "x", "reward_model": {"style": "rule", "ground_truth": "3/4"}}
{"prompt": "The capital of Peru?", "answer": "Lima"}

{"prompt": "1,000 + 234?", "solution": "So it is \\boxed{1,234}."}
{"prompt": "2 + 2?", "ground_truth": 4}
)");
  const EnvironmentPointer rows = find_environment(path);
  EXPECT_EQ(rows->difficulty(), (DifficultyRange{0, 0}));
  const auto make = [&](uint64_t number) { return rows->make(kHeldOutSeeds, number, 0); };
  const auto reward = [&](uint64_t number, const std::string& content) {
    return rows->judge(make(number), content).reward;
  };
  EXPECT_EQ(*make(0).prompt.messages[0].content, "16 - 3 - 4 eggs at $2?");
  EXPECT_EQ(*rows->solve(make(0), Random(1, RandomPurpose::test), TraceStyle::plain)->reasoning_content,
            "So 9.\nThat is $18.");
  for (const char* right : {"18", "\\boxed{18}", "#### 18", "$18.00", "18 dollars", "36/2"})
    EXPECT_EQ(reward(0, right), 1) << right;
  for (const char* wrong : {"17", "nan", "1.8e1x", "18 17", "\\boxed{18} \\boxed{17}", "eighteen", "",
                            "#### 18\n#### 19", "181", "-18", "18%", "16 - 3 - 4 eggs at $2?"})
    EXPECT_EQ(reward(0, wrong), 0) << wrong;
  EXPECT_EQ(make(1).prompt.messages.size(), 2u);
  EXPECT_EQ(reward(1, "0.75"), 1);
  EXPECT_EQ(reward(1, "\\frac{3}{4}"), 1);
  EXPECT_EQ(reward(2, "lima"), 1);
  EXPECT_EQ(reward(2, "Lima, Peru"), 0);
  EXPECT_EQ(reward(3, "1234"), 1);
  EXPECT_EQ(reward(4, "4"), 1);
  EXPECT_EQ(problem_of(make(2).id()).data, make(2).data);
  // Every row once an epoch, in an order of the seed.
  std::set<std::string> seen;
  for (uint64_t number = 0; number < 5; ++number) seen.insert(rows->make(3, number, 0).data);
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_THROW(rows->make(3, 0, 1), Error);
}

TEST(RowEnvironment, PromptsAreJudgedByTheProblemTheyName) {
  const test::TempDir folder;
  const std::string path = folder / "prompts.jsonl";
  test::write_text(path,
                   R"({"prompt": [{"role": "user", "content": "Some other words"}], "id": "sort/1/3@4"})");
  const EnvironmentPointer rows = find_environment(path);
  const Problem problem = rows->make(1, 0, 0);
  EXPECT_EQ(*problem.prompt.messages[0].content, "Some other words");
  const chat::Message right = *rows->solve(problem, Random(1, RandomPurpose::test), TraceStyle::checked);
  const Verdict verdict = rows->judge(problem, right);
  EXPECT_EQ(verdict.reward, 1);
  EXPECT_EQ(verdict.parts.size(), 2u);
  EXPECT_EQ(rows->judge(problem, std::string("9 9 9 9")).reward, 0);
}

TEST(RowEnvironment, SaysWhichRowIsWrong) {
  const test::TempDir folder;
  int count = 0;
  const auto message = [&](const std::string& text) {
    const std::string path = folder / fmt::format("{}.jsonl", count++);
    test::write_text(path, text);
    return message_of([&] { find_environment(path); });
  };
  EXPECT_NE(message("").find("has no rows"), std::string::npos);
  EXPECT_NE(message("{\"question\": \"a\", \"answer\": \"1\"}\n{").find("line 2 is not valid JSON"),
            std::string::npos);
  EXPECT_NE(message("[1]").find("expected an object"), std::string::npos);
  EXPECT_NE(message("{\"answer\": \"1\"}").find("line 1 has no question"), std::string::npos);
  EXPECT_NE(message("{\"question\": \"a\"}").find("has no right answer"), std::string::npos);
  EXPECT_NE(message("{\"question\": \"a\", \"answer\": \"\"}").find("cannot be read"), std::string::npos);
  EXPECT_NE(message("{\"prompt\": \"a\", \"id\": \"srot/1/2@3\"}").find("did you mean 'sort'"),
            std::string::npos);
  EXPECT_NE(message_of([&] { find_environment(folder / "none.jsonl"); }), "");
}

TEST(RowEnvironment, GradesGsm8k) {
  const std::string path = test::optional_data("gsm8k/test.jsonl");
  if (path.empty()) GTEST_SKIP() << "needs gsm8k/test.jsonl in the data folder";
  const EnvironmentPointer rows = row_environment(real_file_system(), path);
  for (uint64_t number = 0; number < 1319; ++number) {
    const Problem problem = rows->make(kHeldOutSeeds, number, 0);
    const auto reply = rows->solve(problem, Random(1, RandomPurpose::test), TraceStyle::plain);
    EXPECT_EQ(rows->judge(problem, *reply).reward, 1) << *reply->content;
    EXPECT_EQ(rows->judge(problem, "\\boxed{" + *reply->content + "1}").reward, 0) << *reply->content;
  }
}

}  // namespace ingot::environments::rows_test
