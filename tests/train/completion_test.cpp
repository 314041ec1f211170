// Learning completions: the loss of a step and its gradient are those of the completion's tokens and no
// others, whatever the prompts are worth; `ingot finetune` on rows of prompt and completion.
#include <gtest/gtest.h>

#include <cmath>

#include "support/small_models.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "tensor/convert.h"
#include "train/step.h"

namespace ingot::test::completion_test {

/// log p of every target of the batch as if none were masked.
std::vector<double> logprobs(const Model& model, const data::Batch& batch) {
  const MicroBatch mb = micro_batch(batch, 0, batch.rows);
  HeapArena arena;
  Tape tape(arena, {.record = false});
  Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
  const Value hidden_TD = model.decoder().forward(c, tape.leaf(mb.ids)).hidden_TD;
  return to_doubles(model.decoder()
                        .head(c, {.mode = HeadMode::store}, hidden_TD, tape.leaf(mb.targets))
                        .logprob_T.tensor());
}

TEST(Completion, TheLossCountsItsTokensOnly) {
  const auto model = small_model("llama", Precision::f32());
  const data::Batch all = packed_batch(2, 16, {9, 7, 5, 11}, model->config().vocab);
  data::Batch masked = all;
  for (size_t t = 0; t < masked.targets.size(); ++t)
    if (masked.positions[t] < 3 && masked.targets[t] != data::kMasked)
      masked.targets[t] = data::kMasked, --masked.valid_targets;
  const std::vector<double> logprob = logprobs(*model, all);
  double expected = 0;
  int64_t counted = 0;
  for (size_t t = 0; t < masked.targets.size(); ++t)
    if (masked.targets[t] >= 0) expected -= logprob[t], ++counted;
  EXPECT_EQ(counted, masked.valid_targets);
  GradientBuffer gradients(model->decoder().table(), {}, DType::f32);
  StepRunner runner(*model, gradients);
  const double on_the_heap = runner.evaluate(masked).first;
  for (const HeadMode mode : {HeadMode::store, HeadMode::recompute, HeadMode::gradient}) {
    const StepStats stats = runner.run(masked, {.head = mode, .micro_batch = 1});
    EXPECT_EQ(stats.valid, counted);
    EXPECT_NEAR(stats.nll, expected, 1e-4);
  }
  EXPECT_NEAR(on_the_heap, expected, 1e-4);
  EXPECT_EQ(runner.evaluate(masked).first, on_the_heap) << "in the memory of the steps' activations";
  EXPECT_EQ(runner.evaluate(masked).second, counted);
  // Another value of a masked target changes no bit of any gradient.
  const int last = model->decoder().table().find("layers.0.attention.qkv.weight");
  const std::vector<double> before = to_doubles(gradients.gradient(last));
  runner.run(masked, {.head = HeadMode::gradient, .micro_batch = 1});
  EXPECT_EQ(to_doubles(gradients.gradient(last)), before);
  runner.run(all, {.head = HeadMode::gradient, .micro_batch = 1});
  EXPECT_NE(to_doubles(gradients.gradient(last)), before);
}

TEST(Completion, FinetuneLearnsAnswersAndKeepsRowsWhole) {
  const TempDir dir;
  write_text(dir / "text.txt", tiny_text(600));
  write_text(dir / "base.toml", base_recipe(dir.path(), 32, "kind = \"characters\""));
  const ProcessResult base = run_process({INGOT_BINARY, "run", dir / "base.toml"});
  ASSERT_EQ(base.exit_code, 0) << base.output;
  std::string rows;
  for (int i = 0; i < 6; ++i) rows += "{\"prompt\": \"the river \", \"completion\": \"runs under\"}\n";
  write_text(dir / "rows.jsonl",
             rows + "{\"prompt\": \"the green hills of gold and rain \", \"completion\": \"sleep\"}\n");
  const auto tune = [&](const std::string& run, const std::vector<std::string>& extra) {
    std::vector<std::string> command = {INGOT_BINARY, "finetune", dir / "base", dir / "rows.jsonl",
                                        "--run",      dir / run,  "--batch",    "2",
                                        "--epochs",   "4",        "--lr",       "1e-2"};
    command.insert(command.end(), extra.begin(), extra.end());
    return run_process(command);
  };
  const ProcessResult refused = tune("long", {});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.output.find("example 6 has 39 tokens, more than the 32"), std::string::npos)
      << refused.output;
  const ProcessResult tuned = tune("tuned", {"--drop-too-long"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.output;
  EXPECT_NE(tuned.output.find("1 of 7 rows"), std::string::npos) << tuned.output;
  const std::string recipe = read_text(dir / "tuned/recipe.toml");
  for (const char* part : {"prompt_field = \"prompt\"", "field = \"completion\"", "sampling = \"best_fit\"",
                           "document_mask = true"})
    EXPECT_NE(recipe.find(part), std::string::npos) << part;
  const std::vector<std::string> steps = losses(dir / "tuned");
  const auto loss = [](const std::string& line) { return std::stod(line.substr(line.find("loss=") + 5)); };
  ASSERT_EQ(steps.size(), 12u);  // 6 rows of one example each, 2 a step, 4 epochs
  EXPECT_LT(loss(steps.back()), loss(steps.front()));
}

}  // namespace ingot::test::completion_test
