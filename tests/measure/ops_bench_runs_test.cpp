// `ingot bench ops`: every distinct execution of a step once, shares that follow from the limits, and every
// flag.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "measure/ops_bench.h"
#include "measure/step_bench.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::ops_bench_runs_test {

using nlohmann::json;

TEST(OpsBench, CountsEveryExecutionAndMeasuresEachKindOnce) {
  const Recipe recipe = preset_recipe({.preset = "zaya-tiny", .batch = 2, .length = 16, .vocab = 64}, {});
  const OpsBenchReport r = bench_ops(recipe, {.only = {}, .trials = 1, .seconds = 1e-6});
  const Model model(recipe.model, recipe.model_precision(), {}, Backing::nothing);
  const StepPlan plan = plan_step(model, {.micro_batch = 2}, 2, 16);
  std::map<std::string, int64_t> calls;
  std::map<std::string, double> flops;
  for (const OpRow& row : r.rows) {
    if (row.pass == OpPass::forward) calls[row.op] += row.calls;
    flops[row.op] += static_cast<double>(row.calls) * row.flops;
    EXPECT_GT(row.seconds.least, 0);
    EXPECT_GT(row.bytes, 0) << row.op;
    EXPECT_FALSE(row.shapes.empty());
  }
  for (const auto& [op, p] : plan.work) {
    EXPECT_EQ(calls[op], p.calls) << op;
    EXPECT_NEAR(flops[op], p.flops[0] + p.flops[1] + p.flops[2], 1e-9 * flops[op]) << op;
  }
  int attention = 0;
  for (const OpRow& row : r.rows) attention += row.op == "attention" && row.pass == OpPass::forward;
  EXPECT_EQ(attention, 1) << "layers are alike";
  for (const std::string& op : r.absent) EXPECT_FALSE(plan.work.contains(op)) << op;
}

/// What runs in backward alone has rows, and what is repeated there has no others.
TEST(OpsBench, ValuesInFp8HaveRowsOfBothOps) {
  const PresetStep step{.preset = "zaya-tiny", .batch = 2, .length = 16, .vocab = 64};
  const OpsBenchOptions once{
      .only = {"activation", "quantize", "dequantize"}, .trials = 1, .seconds = 1e-6, .read_gbs = 10};
  std::map<std::string, int64_t> calls[3];
  for (const int i : {0, 1, 2}) {
    std::vector<std::string> fields;
    if (i > 0) fields.emplace_back(R"(--memory.fp8=["activation","add_norm.h"])");
    if (i > 1) fields.emplace_back(R"(--memory.recompute=["activation"])");
    const OpsBenchReport r = bench_ops(preset_recipe(step, fields), once);
    for (const OpRow& row : r.rows) {
      calls[i][row.op] += row.calls;
      EXPECT_EQ(row.pass == OpPass::recompute, row.op == "dequantize") << row.op;
    }
    for (const char* op : {"quantize", "dequantize"})
      EXPECT_EQ(std::count(r.absent.begin(), r.absent.end(), op), i == 0) << op;
  }
  EXPECT_GT(calls[2]["quantize"], 0);
  EXPECT_GT(calls[1]["quantize"], calls[2]["quantize"]) << "recompute comes first";
  for (const int i : {1, 2}) {
    EXPECT_EQ(calls[i]["dequantize"], calls[i]["quantize"]);
    calls[i].erase("quantize"), calls[i].erase("dequantize");
    EXPECT_EQ(calls[i], calls[0]);
  }
}

TEST(OpsBench, RooflineTimeIsTheLongerOfFlopsAndBytes) {
  OpsBenchReport r;
  r.peak_gflops = 100, r.read_gbs = 10;
  OpRow row;
  row.flops = 200e9, row.bytes = 10e9;
  EXPECT_DOUBLE_EQ(r.roofline_seconds(row), 2);
  row.bytes = 30e9;
  EXPECT_DOUBLE_EQ(r.roofline_seconds(row), 3);
}

TEST(OpsBench, AttentionCrossesWhereFlopsTakeAsLongAsBytes) {
  OpsBenchReport r;
  r.peak_gflops = 100, r.read_gbs = 10, r.length = 400;
  EXPECT_EQ(r.attention_crossing(), 0) << "no attention";
  OpRow row;
  row.op = "attention", row.flops = 80e9, row.bytes = 2e9;  // .8 s and .2 s
  r.rows = {row};
  EXPECT_DOUBLE_EQ(r.attention_crossing(), 100);
  r.rows[0].pass = OpPass::input_gradient;
  EXPECT_EQ(r.attention_crossing(), 0) << "forward alone counts";
}

test::ProcessResult bench(std::vector<std::string> arguments) {
  std::vector<std::string> command{INGOT_BINARY,  "bench",      "ops",        "zaya-tiny",     "--batch=2",
                                   "--length=16", "--vocab=64", "--trials=1", "--seconds=1e-6"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return test::run_process(command);
}

TEST(BenchOps, PrintsSharesAndWritesJson) {
  const test::TempDir folder;
  const auto r = bench({"--bf16", "--reference", "--op=linear,add_norm", "--json", folder / "ops.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  for (const char* text :
       {"of roofline", "weight gradient", "x reference", "all of these", "not in this step:", "bf16"})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  const json all = json::parse(test::read_text(folder / "ops.json"));
  EXPECT_EQ(all["format"], 1);
  EXPECT_EQ(all["precision"], "bf16");
  EXPECT_FALSE(all["rows"].empty());
  for (const auto& row : all["rows"]) {
    EXPECT_TRUE(row["op"] == "linear" || row["op"] == "add_norm");
    EXPECT_GT(row["reference_seconds"], 0);
    EXPECT_GT(row["roofline_seconds"], 0);
    EXPECT_GT(row["share_of_roofline"]["median"], 0);
  }
}

TEST(BenchOps, ColdCallsReadMemory) {
  const test::TempDir folder;
  const auto r = test::run_process({INGOT_BINARY, "bench", "ops", "zaya-tiny", "--batch=2", "--length=16",
                                    "--vocab=64", "--trials=2", "--cold", "--op=attention,add_norm",
                                    "--json=" + (folder / "ops.json")});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  for (const char* text : {"caches empty", "attention is limited by bytes below"})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  const json all = json::parse(test::read_text(folder / "ops.json"));
  EXPECT_EQ(all["cold"], true);
  EXPECT_GT(all["attention_crossing_tokens"], 0);
  EXPECT_EQ(bench({"--cold"}).exit_code, 2) << "--seconds says nothing of single calls";
}

TEST(BenchOps, RefusesWhatIsNoOp) {
  const auto r = bench({"--op=matmul"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.output.find("ingot kernels"), std::string::npos) << r.output;
  EXPECT_EQ(bench({"--trials=0"}).exit_code, 2);
}

TEST(BenchOps, RefusesOtherDevices) {
  const auto r = test::run_process({INGOT_BINARY, "bench", "ops", "zaya-tiny"}, {"INGOT_DEVICE=sim"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.output.find("ingot bench device"), std::string::npos) << r.output;
}

}  // namespace ingot::ops_bench_runs_test
