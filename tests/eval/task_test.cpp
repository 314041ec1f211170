// Task files: what they mean, and messages for what is missing or wrong in a file, a row or a field.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "eval/formula_model.h"
#include "eval/requests.h"
#include "eval/run_task.h"
#include "eval/think_switch.h"
#include "support/support.h"

namespace ingot::test::task_test {

Task parse(const std::string& toml, const std::string& rows) {
  return Task::parse(toml, "d/t.toml", rows, "d/t.jsonl");
}

std::string refusal(const std::string& toml, const std::string& rows) {
  return message_of([&] { parse(toml, rows); });
}

const std::string kChoice =
    "kind = \"choice\"\ndata = \"t.jsonl\"\nprompt = \"{{q}}\"\nchoices_field = \"c\"\ntarget = \"{{a}}\"\n";

TEST(Task, TextsOfARow) {
  const Task t = parse(kChoice + "description = \"D \"\n[fewshot]\ncount = 1\ndelimiter = \"|\"\n",
                       "{\"q\": \"x?\", \"c\": [\"u\", \"v\"], \"a\": 1}\n\n{\"q\": \"y?\", \"c\": [\"u\", "
                       "\"v\"], \"a\": \"u\"}\n");
  EXPECT_EQ(t.name(), "t");
  EXPECT_EQ(t.context(0), "D y? u|x?");  // the row itself is no example
  EXPECT_EQ(t.context(1), "D x? v|y?");
  EXPECT_EQ(t.gold(0), 1u);
  EXPECT_EQ(t.gold(1), 0u);
  EXPECT_EQ(t.chance(), 0.5);
  EXPECT_EQ(t.config().metrics, (std::vector<std::string>{"acc", "acc_norm"}));
}

TEST(Task, TemplatesReachIntoRows) {
  const TaskJson row =
      TaskJson::parse(R"({"n": 3, "x": 0.1, "list": ["a", {"k": "b"}], "no": null, "yes": true})");
  EXPECT_EQ(RowTemplate("{{n}} {{ x }} {{list.1.k}} {{yes}} {{no}} {{list}} {one}").render(row, "r"),
            "3 0.1 b True None ['a', {'k': 'b'}] {one}");
  EXPECT_NE(message_of([&] {
              RowTemplate("{{list.2}}").render(row, "'f' row 4");
            }).find("'f' row 4: 'list' has no field '2' | it is a list of 2"),
            std::string::npos);
  EXPECT_NE(message_of([] { RowTemplate("{{a|upper}}"); }).find("{{a|upper}}"), std::string::npos);
  EXPECT_NE(message_of([] { RowTemplate("{{a"); }).find("does not close"), std::string::npos);
}

TEST(Task, FaultsNameFileRowAndField) {
  struct Case {
    std::string toml, rows, message;
  };
  const std::string good = "{\"q\": \"x\", \"c\": [\"u\", \"v\"], \"a\": 0}\n";
  for (const Case& c : std::vector<Case>{
           {kChoice, good + "{\"q\": \"x\", \"c\": [\"u\", \"v\"]}\n",
            "'d/t.jsonl' row 2: the row has no field 'a' | its fields: q, c"},
           {kChoice, good + good + "{\"q\": 1, \"c\": \"u\", \"a\": 0}\n",
            "'d/t.jsonl' row 3: 'c' is string, expected a list"},
           {kChoice, "{\"q\": 1, \"c\": [\"u\", \"\"], \"a\": 0}\n", "row 1: 'c' holds an empty text"},
           {kChoice, "{\"q\": 1, \"c\": [\"u\", \"v\"], \"a\": 2}\n",
            "the target is choice 2 of 2 | choices count from 0"},
           {kChoice, "{\"q\": 1, \"c\": [\"u\", \"v\"], \"a\": \"w\"}\n",
            "the target 'w' is none of the choices"},
           {kChoice, good + "{\"q\": \n", "'d/t.jsonl' line 2 is not valid JSON"},
           {kChoice, "[1]\n", "'d/t.jsonl' line 1: expected an object of fields, found array"},
           {kChoice, "\n \n", "'d/t.jsonl' has no rows"},
           {kChoice + "shots = 3\n", good, "shots"},
           {kChoice + "[fewshot]\ncount = 1\n", good, "fewshot.count = 1 needs 2 rows, found 1"},
           {kChoice + "metrics = [\"f1\"]\n", good, "'f1' is none of: acc, acc_norm"},
           {kChoice + "window = 8\n", good, "window"},
           {kChoice + "name = \"a/b\"\n", good, "a task's name is 'a/b'"},
           {"kind = \"cloze\"\ndata = \"t.jsonl\"\ntarget = \"{{q}}\"\n", "{\"q\": \"\"}\n",
            "the target is empty"},
           {"kind = \"cloze\"\ndata = \"t.jsonl\"\n", good, "target: must say what is right"},
           {"kind = \"generation\"\ndata = \"t.jsonl\"\ntarget = \"1\"\nmetrics = [\"pass@4\"]\n", good,
            "needs 1 to 1 samples"},
           {"kind = \"generation\"\ndata = \"t.jsonl\"\ntarget = "
            "\"1\"\n[[filters]]\n[[filters.steps]]\npattern = \"(\"\n",
            good, "filters.0.steps.0.pattern: the pattern '(' is wrong at character 1"},
           {"kind = \"generation\"\ndata = \"t.jsonl\"\ntarget = \"1\"\n[sampling]\ntemperature = nan\n",
            good, "sampling.temperature"},
           {"kind = \"generation\"\ndata = \"t.jsonl\"\ntarget = \"1\"\n[chat]\nthinking = \"on\"\n", good,
            "need chat.enabled"},
       })
    EXPECT_NE(refusal(c.toml, c.rows).find(c.message), std::string::npos)
        << refusal(c.toml, c.rows) << "\nexpected " << c.message;
}

TEST(Task, NamesAndFolders) {
  const TempDir folder;
  write_text(folder / "alpha.toml", "");
  FileSystem& fs = real_file_system();
  EXPECT_EQ(task_path(fs, "alpha", {folder / "none", folder.path()}), folder / "alpha.toml");
  EXPECT_NE(message_of([&] { task_path(fs, "alhpa", {folder.path()}); }).find("did you mean 'alpha'?"),
            std::string::npos);
  EXPECT_NE(message_of([&] { task_path(fs, "x.toml", {}); }).find("no task file 'x.toml'"),
            std::string::npos);
  EXPECT_EQ(task_names("a, b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_NE(message_of([] { task_names("a,,b"); }).find("empty name"), std::string::npos);
  EXPECT_NE(message_of([] { task_names("a,a"); }).find("twice"), std::string::npos);
  write_text(folder / "lost.toml", kChoice);
  const std::string lost = message_of([&] { Task::load(fs, folder / "lost.toml"); });
  EXPECT_NE(lost.find("does not exist"), std::string::npos) << lost;
  EXPECT_NE(lost.find("--task-data"), std::string::npos) << lost;
}

// Every task that is shipped can be read, and its rows have what it asks for.
TEST(Task, ShippedTasksAreWhole) {
  int likelihoods = 0, generations = 0;
  const std::string folder = std::string(INGOT_SOURCE_DIR) + "/tasks";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".toml" || entry.path().stem() == "gsm8k") continue;
    const Task task = Task::load(real_file_system(), entry.path().string());
    EXPECT_GE(task.rows().size(), 20u) << task.name();
    ++(task.config().kind == TaskKind::generation ? generations : likelihoods);
    if (!task.config().chat.enabled) task.context(task.rows().size() - 1);
  }
  EXPECT_GE(likelihoods, 5);
  EXPECT_GE(generations, 4);
}

TEST(Task, Gsm8kHasItsForm) {
  const TempDir folder;
  std::filesystem::create_directory(folder / "gsm8k");
  const std::string row =
      "{\"question\": \"Two and two?\", \"answer\": \"It is <<2+2=4>>4.\\n#### 1,004\"}\n";
  std::string train;
  for (int i = 0; i < 5; ++i) train += row;
  write_text(folder / "gsm8k/test.jsonl", row);
  write_text(folder / "gsm8k/train.jsonl", train);
  const Task task =
      Task::load(real_file_system(), std::string(INGOT_SOURCE_DIR) + "/tasks/gsm8k.toml", folder.path());
  const AnswerComparison same(task.config());
  const Filter strict(task.config().filters[0]), flexible(task.config().filters[1]);
  EXPECT_TRUE(same.equal(strict.apply("so.\n#### 1004."), task.target_text(0)));
  EXPECT_FALSE(same.equal(strict.apply("so 1004"), task.target_text(0)));
  EXPECT_TRUE(same.equal(flexible.apply("first 3, then $1,004."), task.target_text(0)));
  EXPECT_TRUE(task.context(0).starts_with("Question: Two and two?\nAnswer: It is"));
}

TEST(Task, RequestsThatDoNotFit) {
  const FormulaModel model(8);
  bool cut = false;
  const ScoreRequest r = score_request(model, "abcdefgh  ", "xy", "row", cut);
  EXPECT_TRUE(cut);
  EXPECT_EQ(r.context.size() + r.continuation.size(), 8u);
  EXPECT_EQ(r.continuation.size(), 4u);  // with the two spaces
  EXPECT_EQ(r.context.back(), 'h');
  EXPECT_NE(message_of([&] {
              score_request(model, "a", "12345678", "'f' row 2", cut);
            }).find("'f' row 2: the text to predict has 8 tokens"),
            std::string::npos);
  EXPECT_NE(message_of([&] { answer_prompt(model, {1}, 8, "'f' row 2", cut); }).find("leave no space"),
            std::string::npos);
  EXPECT_EQ(answer_prompt(model, {1, 2, 3, 4}, 6, "row", cut), (std::vector<int32_t>{3, 4}));
}

TEST(Task, SeveralAnswersARow) {
  const Task t = parse(
      "kind = \"generation\"\ndata = \"t\"\nprompt = \"{{q}}\"\ntarget = \"3\"\nmetrics = [\"avg@6\", "
      "\"pass@1\", "
      "\"pass@2\", \"best@2\", \"majority@6\", \"exact_match\"]\n[sampling]\nsamples = 6\ntemperature = "
      "1\n[[filters]]\nname = "
      "\"n\"\n[[filters.steps]]\nfunction = \"last_number\"\n",
      "{\"q\": \"a\"}\n{\"q\": \"b\"}\n");
  FormulaModel model;
  const TaskResult r = run_task(t, model);
  const TaskJson& first = r.samples[0];
  double right = 0;  // of the six answers of the first row
  for (const TaskJson& a : first["filtered_resps"][0]) right += a == "3" ? 1 : 0;
  EXPECT_EQ(first["avg@6"], right / 6);
  EXPECT_NEAR(first["pass@1"].get<double>(), right / 6, 1e-15);
  ASSERT_TRUE(r.find("seed_noise"));
  EXPECT_GT(r.find("seed_noise")->value, 0);
  ASSERT_TRUE(r.lengths);
  EXPECT_EQ(r.lengths->answers, 12);
  EXPECT_EQ(r.lengths->longest, 15);
}

/// Replies think where the last turn asks for it; "stubborn" conversations never do.
class SwitchModel : public FormulaModel {
 public:
  std::vector<std::vector<Answer>> answer(std::span<const AnswerRequest> requests,
                                          const TaskSampling&) override {
    const std::string text(requests[0].prompt.begin(), requests[0].prompt.end());
    const bool thinks = text.ends_with(" /think\n") && text.find("stubborn") == text.npos;
    return {{{thinks ? "<think>so</think>yes" : "<think> \n</think>yes", 3, false}}};
  }
};

TEST(Task, ThinkingIsSwitchedByTurn) {
  const Task t = parse(
      "kind = \"generation\"\ndata = \"t\"\nmetrics = [\"think_follow\", \"well_formed\"]\n[chat]\nenabled = "
      "true\nmessages = \"m\"\nthinking = "
      "\"switched\"\n",
      "{\"m\": [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]}\n{\"m\": [\"stubborn\", \"b\", \"c\", \"d\", "
      "\"e\", \"f\"]}\n");
  SwitchModel model;
  const SwitchOutcome obeys = run_think_switch(t, 0, model), stubborn = run_think_switch(t, 1, model);
  EXPECT_EQ(obeys.share(), 1);
  EXPECT_LT(stubborn.share(), 1);
  EXPECT_GT(stubborn.share(), 0);
  EXPECT_EQ(obeys.prompts[5].find("<think>"), std::string::npos);  // earlier reasoning is gone
  EXPECT_NE(obeys.prompts[5].find("assistant: yes"), std::string::npos);
  const TaskResult result = run_task(t, model);
  EXPECT_EQ(result.find("think_follow")->value, (1 + stubborn.share()) / 2);
  EXPECT_EQ(result.find("well_formed")->value, 1);
}

/// Replies by the question: whole, cut by the budget, or with nothing behind the reasoning.
class FormModel : public FormulaModel {
 public:
  std::vector<std::vector<Answer>> answer(std::span<const AnswerRequest> requests,
                                          const TaskSampling&) override {
    std::vector<std::vector<Answer>> all;
    for (const AnswerRequest& r : requests) {
      const std::string text(r.prompt.begin(), r.prompt.end());
      const auto asked = [&](const char* word) { return text.find(word) != text.npos; };
      if (asked("cut"))
        all.push_back({{"<think>so</think>ye", 3, true}});
      else if (asked("silent"))
        all.push_back({{"<think>so</think> \n", 3, false}});
      else
        all.push_back({{"<think>so</think>yes", 3, false}});
    }
    return all;
  }
};

TEST(Task, AnswersThatAreNotWholeAreCounted) {
  FormModel model;
  const auto share = [&](const std::string& question) {
    const Task t = parse(
        "kind = \"generation\"\ndata = \"t\"\nmetrics = [\"well_formed\"]\n[chat]\nenabled = true\nmessages "
        "= "
        "\"m\"\n",
        "{\"m\": [\"" + question + "\"]}\n");
    return run_task(t, model).find("well_formed")->value;
  };
  EXPECT_EQ(share("well"), 1);
  for (const char* question : {"cut", "silent"}) EXPECT_EQ(share(question), 0) << question;
}

}  // namespace ingot::test::task_test
