// `ingot bench step`: what it prints follows from its trials, and every flag.
#include "measure/step_bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::step_bench_test {

using nlohmann::json;

TEST(StepBench, SharesAndRatesFollowFromTheTrials) {
  StepBenchReport r;
  r.batch = 2, r.length = 50, r.flops_per_token = 1e9;
  r.trials = {{90, 110, 2, 0, 0, 0}, {200, 200, 1, 0, 0, 0}, {100, 100, 4, 0, 0, 0}};
  EXPECT_DOUBLE_EQ(r.tokens_per_second().median, 50);  // 50, 100, 25
  EXPECT_DOUBLE_EQ(r.share_of_peak().median, 0.5);     // 50/100, 100/200, 25/100
  EXPECT_DOUBLE_EQ(r.share_of_peak().least, 0.25);
  EXPECT_DOUBLE_EQ(r.peak(), 105);  // of 90 100 100 110 200 200
}

TEST(StepBench, RandomBatchesAreCompleteAndDiffer) {
  const data::Batch a = random_batch(3, 8, 11, 0), again = random_batch(3, 8, 11, 0),
                    b = random_batch(3, 8, 11, 1);
  EXPECT_EQ(a, again);
  EXPECT_NE(a.tokens, b.tokens);
  EXPECT_EQ(a.valid_targets, 24);
  EXPECT_EQ(a.spans.size(), 3u);
  for (size_t i = 0; i + 1 < a.tokens.size(); ++i) {
    EXPECT_TRUE(a.tokens[i] >= 0 && a.tokens[i] < 11);
    EXPECT_EQ(a.targets[i], a.tokens[i + 1]);
  }
}

test::ProcessResult bench(std::vector<std::string> arguments) {
  std::vector<std::string> command{INGOT_BINARY, "bench", "step"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return test::run_process(command);
}

const std::vector<std::string> kTiny{"zaya-tiny",  "--batch=4",   "--length=16",     "--vocab=31",
                                     "--trials=2", "--warm-up=1", "--model.layers=2"};

std::vector<std::string> tiny(std::initializer_list<std::string> more) {
  std::vector<std::string> all = kTiny;
  all.insert(all.end(), more);
  return all;
}

TEST(BenchStep, TrainsOnADevice) {
  const test::TempDir folder;
  const auto r =
      bench({"zaya-tiny", "--batch=2", "--length=8", "--vocab=31", "--model.layers=2", "--trials=2",
             "--warm-up=3", "--device=sim", "--kernels=any", "--json", folder / "step.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("GFLOP/s of our large product of bf16"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("device 'sim', in a step: "), std::string::npos) << r.output;
  const json all = json::parse(test::read_text(folder / "step.json"));
  EXPECT_EQ(all["device"], "sim");
  EXPECT_EQ(all["device_work"]["synchronizations"], 2);
  EXPECT_EQ(all["device_work"]["allocations"], 0);
  EXPECT_GT(all["peak_gflops"], 0);
  EXPECT_EQ(bench({"zaya-tiny", "--device=tpu"}).exit_code, 1);
  EXPECT_EQ(bench({"zaya-tiny", "--kernels=most"}).exit_code, 1);
}

TEST(BenchStep, PrintsTokensShareAndOpsAndWritesJson) {
  const test::TempDir folder;
  const auto r = bench(tiny({"--json", folder / "step.json"}));
  ASSERT_EQ(r.exit_code, 0) << r.output;
  for (const char* text :
       {"tokens/s", "% of P", "median of 2 trials", "backward weight", "grouped_linear", "ops "})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  const json all = json::parse(test::read_text(folder / "step.json"));
  EXPECT_EQ(all["format"], 1);
  EXPECT_EQ(all["batch"], 4);
  EXPECT_EQ(all["micro_batch"], 4);
  EXPECT_EQ(all["length"], 16);
  EXPECT_EQ(all["precision"], "f32");
  ASSERT_EQ(all["trials"].size(), 2u) << "warm-up steps do not count";
  for (const auto& t : all["trials"]) {
    EXPECT_GT(t["peak_before_gflops"], 0);
    EXPECT_GT(t["peak_after_gflops"], 0);
    EXPECT_NEAR(t["tokens_per_second"].get<double>() * t["seconds"].get<double>(), 64, 1e-6);
    EXPECT_LE(t["passes_seconds"].get<double>() + t["update_seconds"].get<double>(),
              t["seconds"].get<double>() + 1e-9);
  }
  EXPECT_GT(all["share_of_peak"]["median"], 0);
  EXPECT_FALSE(all["ops"].empty());
  for (const auto& op : all["ops"]) EXPECT_GT(op["seconds"], 0);
}

TEST(BenchStep, EveryFlagReachesTheStep) {
  const test::TempDir folder;
  const auto r = bench(
      tiny({"--micro=2", "--bf16", "--quiet", "--optimizer.matrices=adamw", "--json", folder / "step.json"}));
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(r.output.find("backward weight"), std::string::npos) << r.output;
  const json all = json::parse(test::read_text(folder / "step.json"));
  EXPECT_EQ(all["micro_batch"], 2);
  EXPECT_EQ(all["precision"], "bf16");
}

TEST(BenchStep, PacedAnswersEachLineWithATrial) {
  std::string command = "printf '\\n\\n' | '" INGOT_BINARY "' bench step --paced";
  for (const std::string& a : kTiny) command += " " + a;
  const auto r = test::run_process({"/bin/sh", "-c", command});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  std::istringstream lines(r.output);
  std::vector<json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  ASSERT_EQ(answers.size(), 3u) << r.output;
  EXPECT_EQ(answers[0]["ready"], true);
  EXPECT_GT(answers[0]["parameters"], 0);
  EXPECT_GT(answers[0]["flops_per_token"], 0);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_NEAR(answers[i]["tokens_per_second"].get<double>() * answers[i]["seconds"].get<double>(), 64,
                1e-6);
    EXPECT_GT(answers[i]["peak_before_gflops"], 0);
  }
  EXPECT_NE(bench(tiny({"--paced", "--json=x.json"})).exit_code, 0) << "there is no report of all trials";
}

TEST(BenchStep, RefusesWhatIsNoModelOrStep) {
  const auto unknown = bench({"gpt-11m"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.output.find("gpt-10m"), std::string::npos) << "names the nearest\n" << unknown.output;
  for (const char* what : {"step", "ops"}) {  // refused, not ignored
    const auto limited = test::run_process(
        {INGOT_BINARY, "bench", what, "zaya-tiny", "--vocab=31", "--length=16", "--memory.limit=1GiB"});
    EXPECT_EQ(limited.exit_code, 1);
    EXPECT_NE(limited.output.find("memory.limit is 1GiB"), std::string::npos) << limited.output;
    EXPECT_NE(limited.output.find("--memory.recompute="), std::string::npos) << limited.output;
  }
  EXPECT_EQ(bench(tiny({"--micro=3"})).exit_code, 1);
  EXPECT_EQ(bench(tiny({"--model.no_such_field=1"})).exit_code, 1);
  EXPECT_EQ(bench({"gpt-10m", "--trials=0"}).exit_code, 2);
}

}  // namespace ingot::step_bench_test
