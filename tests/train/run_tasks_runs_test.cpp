// evaluation.tasks: three saves give three rows and a curve, each number has the bits that `ingot eval`
// computes for that checkpoint, and what cannot work is refused before the first step.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "report/metrics.h"
#include "support/tiny_run.h"
#include "train/prepare.h"
#include "train/run_tasks.h"

namespace ingot::test::run_tasks_runs_test {

using Json = nlohmann::ordered_json;

/// A choice, a generation and a perplexity of the run's own words.
void write_tasks(const std::string& folder, const std::string& text) {
  std::string rows;
  for (size_t i = 0; i < 6; ++i) {
    const size_t at = text.find_first_of(" ", 40 * i) + 1;
    const Json row = {{"start", text.substr(at, 12)},
                      {"c", {text.substr(at + 12, 5), "the of a"}},
                      {"text", text.substr(at, 90)}};
    rows += row.dump() + "\n";
  }
  write_text(folder + "/rows.jsonl", rows);
  write_text(
      folder + "/pick.toml",
      "kind = \"choice\"\ndata = \"rows.jsonl\"\nprompt = \"{{start}}\"\ndelimiter = \"\"\nchoices_field = "
      "\"c\"\ntarget = \"0\"\nmetrics = [\"acc\", \"acc_norm\", \"acc_mutual_info\"]\n");
  write_text(
      folder + "/go_on.toml",
      "kind = \"generation\"\ndata = \"rows.jsonl\"\nprompt = \"{{start}}\"\ntarget = \"{{c.0}}\"\nmetrics = "
      "[\"exact_match\", \"avg@3\"]\n[sampling]\nmax_tokens = 6\ntemperature = 0.9\nsamples = "
      "3\n[[filters]]\n"
      "name = \"letters\"\n[[filters.steps]]\npattern = \"[a-z]\"\n");
  write_text(folder + "/words.toml", "kind = \"perplexity\"\ndata = \"rows.jsonl\"\ntarget = \"{{text}}\"\n");
}

struct RunTasks : ::testing::Test {
  const TempDir folder;
  void SetUp() override {
    const std::string text = tiny_text(4000);
    write_text(folder / "text.txt", text);
    write_text(folder / "recipe.toml", tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
    write_tasks(folder.path(), text);
  }
  ProcessResult run(std::vector<std::string> more) const {
    std::vector<std::string> command = {INGOT_BINARY,
                                        "run",
                                        folder / "recipe.toml",
                                        "--checkpoint.every=12",
                                        "--checkpoint.keep_last=0",
                                        "--evaluation.tasks_folder=" + folder.path()};
    command.insert(command.end(), more.begin(), more.end());
    return run_process(command);
  }
};

TEST_F(RunTasks, EverySaveHasARowWithTheBitsOfEval) {
  const ProcessResult trained = run({"--evaluation.tasks=[\"pick\", \"go_on\", \"words\"]"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  std::map<int64_t, MetricRow> rows;
  for (const MetricRow& row : read_metrics(real_file_system(), folder / "run/metrics.jsonl"))
    if (row.scalar("task/pick/acc") != nullptr) rows[row.step] = row;
  ASSERT_EQ(rows.size(), 3u) << trained.output;
  for (const auto& [step, row] : rows) {
    const std::string checkpoint = folder / "run/checkpoints/step-" + fmt::format("{:08}", step),
                      json = folder / "eval.json";
    const ProcessResult evaluated =
        run_process({INGOT_BINARY, "eval", checkpoint, "--tasks", "pick,go_on,words", "--tasks-folder",
                     folder.path(), "--json=" + json});
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
    int values = 0;
    const Json results = Json::parse(read_text(json))["results"];
    for (const auto& [task, scores] : results.items())
      for (const auto& [key, value] : scores.items()) {
        if (!value.is_number_float()) continue;
        const double* in_run = row.scalar(fmt::format("task/{}/{}", task, key.substr(0, key.find(','))));
        ASSERT_TRUE(in_run) << task << " " << key;
        EXPECT_EQ(*in_run, value.get<double>()) << task << " " << key << " of step " << step;
        ++values;
      }
    EXPECT_EQ(values, 6 + 5 + 3);
  }
  EXPECT_NE(rows.at(12).scalar("task/words/bits_per_byte"), nullptr);
  EXPECT_NE(*rows.at(12).scalar("task/words/bits_per_byte"), *rows.at(24).scalar("task/words/bits_per_byte"));
  const std::string report = read_text(folder / "run/report.html");
  EXPECT_NE(report.find("bits_per_byte"), std::string::npos);
  EXPECT_NE(report.find("Tasks"), std::string::npos);
}

TEST_F(RunTasks, OftenerOrFewerRows) {
  const ProcessResult trained =
      run({"--evaluation.tasks=[\"pick\"]", "--evaluation.tasks_every=5", "--evaluation.tasks_limit=2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  std::vector<int64_t> steps;
  for (const MetricRow& row : read_metrics(real_file_system(), folder / "run/metrics.jsonl"))
    if (const double* acc = row.scalar("task/pick/acc")) {
      steps.push_back(row.step);
      EXPECT_TRUE(*acc == 0 || *acc == 0.5 || *acc == 1) << *acc;
    }
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 10, 15, 20, 24}));
}

TEST_F(RunTasks, APhaseHasItsOwnTasksAndBeginsIfItsGateHolds) {
  const std::string gate = "--phases.1.gate=words.bits_per_byte <= ";
  const ProcessResult held =
      run({"--evaluation.tasks=[\"pick\"]", "--phases.1.tasks=[\"words\"]", gate + "0.01"});
  EXPECT_EQ(held.exit_code, 1) << held.output;
  EXPECT_NE(held.output.find("phase 'second' does not begin: it asks for words.bits_per_byte <= 0.01"),
            std::string::npos)
      << held.output;
  const ProcessResult begun =
      run({"--evaluation.tasks=[\"pick\"]", "--phases.1.tasks=[\"words\"]", gate + "50"});
  ASSERT_EQ(begun.exit_code, 0) << begun.output;
  EXPECT_NE(begun.output.find("phase 'second' begins: words.bits_per_byte is "), std::string::npos);
  for (const MetricRow& row : read_metrics(real_file_system(), folder / "run/metrics.jsonl")) {
    EXPECT_TRUE(row.step <= 14 || row.scalar("task/pick/acc") == nullptr) << row.step;
    EXPECT_TRUE(row.step > 14 || row.scalar("task/words/bits_per_byte") == nullptr) << row.step;
    if (row.step == 24) {
      EXPECT_NE(row.scalar("task/words/bits_per_byte"), nullptr);
    }
  }
  const ProcessResult wrong = run({"--phases.1.gate=words"});
  EXPECT_NE(wrong.output.find("'words' is no gate"), std::string::npos) << wrong.output;
  const ProcessResult none =
      run({"--phases.0.gate=words.accuracy >= 0.1", "--run.folder=" + (folder / "none")});
  EXPECT_NE(none.output.find("has no metric 'accuracy'"), std::string::npos) << none.output;
}

TEST_F(RunTasks, AnInterruptEndsThemBetweenTwo) {
  const Recipe recipe = load_recipe(folder / "recipe.toml", {"--evaluation.tasks=[\"pick\", \"words\"]",
                                                             "--evaluation.tasks_folder=" + folder.path()});
  const PreparedData data = prepare_data(real_file_system(), recipe);
  const RunRanks ranks(recipe, nullptr);
  TrainEngine engine(with_vocabulary(recipe, data), ranks);
  engine.model().weights().initialize(3);
  const ::ingot::RunTasks tasks(real_file_system(), engine);
  for (const int stop_at : {1, 2, 3}) {
    MetricRow row;
    int asked = 0;
    const auto line = tasks.run(engine, data, 0, row, [&] { return ++asked == stop_at; });
    EXPECT_EQ(line.has_value(), stop_at == 3);
    EXPECT_EQ(asked, std::min(stop_at, 2));
    EXPECT_EQ(row.scalar("task/pick/acc") != nullptr, stop_at > 1);
    EXPECT_EQ(row.scalar("task/words/bits_per_byte") != nullptr, stop_at == 3);
  }
}

TEST_F(RunTasks, FaultsComeBeforeTheFirstStep) {
  const ProcessResult unknown = run({"--evaluation.tasks=[\"pikc\"]"});
  EXPECT_EQ(unknown.exit_code, 1) << unknown.output;
  EXPECT_NE(unknown.output.find("did you mean 'pick'?"), std::string::npos) << unknown.output;
  write_text(folder / "talk.toml",
             "kind = \"generation\"\ndata = \"rows.jsonl\"\ntarget = \"1\"\n[chat]\nenabled = true\n");
  const ProcessResult chat = run({"--evaluation.tasks=[\"talk\"]"});
  EXPECT_NE(chat.output.find("'talk' asks in a chat format"), std::string::npos) << chat.output;
  const ProcessResult negative = run({"--evaluation.tasks_every=-1"});
  EXPECT_NE(negative.output.find("evaluation.tasks_every"), std::string::npos) << negative.output;
}

}  // namespace ingot::test::run_tasks_runs_test
