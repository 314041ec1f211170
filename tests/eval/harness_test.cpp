// Tasks against lm-evaluation-harness 0.4.13 (fixtures of tools/oracle/make_eval.py): every number to the
// last bit, every line of samples to the last byte, the result file's form, the table.
#include <gtest/gtest.h>

#include "base/error.h"
#include "eval/formula_model.h"
#include "eval/results.h"
#include "eval/run_task.h"
#include "support/support.h"

namespace ingot::test::harness_test {

Task fixture_task(const std::string& name) {
  return Task::load(real_file_system(), fixture("eval/" + name + ".toml"));
}

TaskResult run_fixture(const Task& task) {
  FormulaModel model(task.config().kind == TaskKind::perplexity ? 64 : 100000);
  return run_task(task, model);
}

TEST(Harness, NumbersAndLinesAreEqual) {
  const TaskJson expected = TaskJson::parse(read_text(fixture("eval/harness.json")));
  int values = 0, lines = 0;
  for (const char* name : {"claims", "last_word", "sums", "texts", "words", "words_3shot"}) {
    const Task task = fixture_task(name);
    const TaskResult result = run_fixture(task);
    const TaskJson& numbers = expected["results"][name];
    for (const MetricValue& v : result.values) {
      EXPECT_EQ(v.value, numbers.at(v.metric + "," + v.filter).get<double>()) << name << " " << v.metric;
      const TaskJson& error = numbers.at(v.metric + "_stderr," + v.filter);
      EXPECT_EQ(v.error ? TaskJson(*v.error) : TaskJson("N/A"), error) << name << " " << v.metric;
      ++values;
    }
    EXPECT_EQ(numbers.size(), 3 + 2 * result.values.size()) << name;
    // The harness writes a task's filters one after the other, this program a row's filters together.
    std::vector<std::string> ours;
    for (const FilterConfig& f : task.config().filters)
      for (const TaskJson& s : result.samples)
        if (s["filter"] == f.name) ours.push_back(python_json(s));
    if (ours.empty())
      for (const TaskJson& s : result.samples) ours.push_back(python_json(s));
    const TaskJson& theirs = expected["samples"][name];
    ASSERT_EQ(ours.size(), theirs.size()) << name;
    for (size_t i = 0; i < ours.size(); ++i, ++lines)
      EXPECT_EQ(ours[i], theirs[i].get<std::string>()) << name;
  }
  EXPECT_EQ(values, 14);
  EXPECT_EQ(lines, 7 + 9 + 40 + 6 + 12 + 12);
}

TEST(Harness, TheTableHasItsForm) {
  const Task words = fixture_task("words_3shot"), sums = fixture_task("sums"), texts = fixture_task("texts");
  const std::string table =
      results_table({{&words, run_fixture(words)}, {&sums, run_fixture(sums)}, {&texts, run_fixture(texts)}});
  EXPECT_EQ(table,
            "|   Tasks   |Version|     Filter     |n-shot|    Metric     |   |  Value   |   |Stderr|\n"
            "|-----------|------:|----------------|-----:|---------------|---|---------:|---|-----:|\n"
            "|sums       |      1|flexible-extract|     1|exact_match    |↑  |    0.2500|±  |0.0993|\n"
            "|           |       |strict-match    |     1|exact_match    |↑  |    0.2500|±  |0.0993|\n"
            "|texts      |      1|none            |     0|bits_per_byte  |↓  |    2.3012|±  |   N/A|\n"
            "|           |       |none            |     0|byte_perplexity|↓  |    4.9286|±  |   N/A|\n"
            "|           |       |none            |     0|word_perplexity|↓  |10092.0344|±  |   N/A|\n"
            "|words_3shot|      2|none            |     3|acc            |↑  |    0.2500|±  |0.1306|\n"
            "|           |       |none            |     3|acc_norm       |↑  |    0.2500|±  |0.1306|\n");
}

TEST(Harness, ResultFilesHaveEveryKeyAndNamesSortByTime) {
  const TempDir folder;
  const Task sums = fixture_task("sums");
  const std::vector<TaskEvaluation> done = {{&sums, run_fixture(sums)}};
  const EvaluatedModel model{.path = "runs/a:b", .parameters = 5, .context = 64, .dtype = "f32"};
  const std::string path = write_results(real_file_system(), folder.path(), model, done, 1.75e9, 2.5);
  EXPECT_TRUE(path.starts_with(folder / "runs__a__b/results_20")) << path;
  const TaskJson r = TaskJson::parse(read_text(path));
  for (const char* key : {"results",
                          "group_subtasks",
                          "configs",
                          "versions",
                          "n-shot",
                          "higher_is_better",
                          "n-samples",
                          "config",
                          "git_hash",
                          "date",
                          "pretty_env_info",
                          "transformers_version",
                          "lm_eval_version",
                          "upper_git_hash",
                          "tokenizer_pad_token",
                          "tokenizer_eos_token",
                          "tokenizer_bos_token",
                          "eot_token_id",
                          "max_length",
                          "task_hashes",
                          "model_source",
                          "model_name",
                          "model_name_sanitized",
                          "system_instruction",
                          "system_instruction_sha",
                          "fewshot_as_multiturn",
                          "chat_template",
                          "chat_template_sha",
                          "total_evaluation_time_seconds"})
    EXPECT_TRUE(r.contains(key)) << key;
  EXPECT_EQ(r["results"]["sums"]["exact_match,strict-match"], 0.25);
  EXPECT_EQ(r["n-samples"]["sums"]["original"], 20);
  EXPECT_EQ(r["ingot"]["sums"]["answer_tokens"]["median"], 10);
  std::string samples = path;
  samples.replace(samples.find("results_"), 8, "samples_sums_");
  samples.replace(samples.rfind(".json"), 5, ".jsonl");
  EXPECT_EQ(read_text(samples).substr(0, 10), "{\"doc_id\":") << samples;
}

TEST(Harness, ConfigurationsAreTasksOfTheHarnessOrRefused) {
  const TaskJson c = harness_config(fixture_task("sums"), true);
  EXPECT_EQ(c["output_type"], "generate_until");
  EXPECT_EQ(c["filter_list"][1]["filter"][0]["group_select"], -1);
  Task own = Task::parse("kind = \"generation\"\ndata = \"d\"\ntarget = \"1\"\nmetrics = [\"pass@1\"]\n",
                         "t.toml", "{}\n", "d");
  try {
    harness_config(own, true);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("pass@1"), std::string::npos) << e.what();
  }
}

}  // namespace ingot::test::harness_test
