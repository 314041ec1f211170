// Everything that decides an optimizer's step is in the checkpoint: a run with AdEMAMix, Muon with a momentum
// schedule, stochastically rounded bf16 moments, rules, MuonClip and batch sizes that change by tokens and by
// loss, killed at several steps, ends with the bits of an undisturbed one.
#include <gtest/gtest.h>
#include <signal.h>

#include "report/metrics.h"
#include "report/run_record.h"
#include "support/killer.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::options_resume_test {

TEST(OptionsChild, DISABLED_Run) {
  if (!run_until_killed()) GTEST_SKIP() << "started by the tests of Options";
}

std::string recipe_of(const TempDir& folder, const std::string& run) {
  return fmt::format(R"([run]
folder = "{0}/{1}"
seed = 3
[model]
width = 16
layers = 2
heads = 4
kv_heads = 2
head_width = 8
hidden = 24
context = 64
init_std = 0.4
window = 24
window_block = 4
window_pattern = "SH"
input_mix = true
unet_skips = true
value_embeddings = 1
[[model.init]]
pattern = "*.down.weight"
kind = "truncated"
residual_scaled = true
[tokenizer]
kind = "characters"
[data]
folder = "{0}/data"
end_of_text_first = true
[[data.sources]]
name = "words"
path = "{0}/text.txt"
documents = "blank_line"
validation_fraction = 0.1
[optimizer]
others = "ademamix"
ademamix.beta3 = 0.999
muon.momentum_warmup = 5
muon.momentum_cooldown = 6
first_moment = "bf16_stochastic"
second_moment = "bf16_stochastic"
qk_clip = 1.5
[[optimizer.rules]]
pattern = "*.out.weight"
optimizer = "adamw"
lr_multiplier = 0.5
decay_multiplier = 2.0
[[phases]]
name = "first"
steps = 14
batch = 2
sequence = 24
lr = 1e-2
warmup = 3
window_growth = 20
batch_rate = "sqrt"
[[phases.batches]]
tokens = 200
batch = 4
[[phases.batches]]
loss = 20.0
batch = 6
[[phases]]
name = "second"
steps = 6
batch = 3
micro_batch = 1
sequence = 40
lr = 5e-3
schedule = "piecewise"
segments = [{{ until = 0.5, to = 1.0 }}, {{ until = 1.0, to = 0.316 }}]
warmup = 0
[[phases.batches]]
tokens = 250
batch = 5
[checkpoint]
every = 4
[evaluation]
every = 5
max_tokens = 80
[samples]
every = 6
prompts = ["the "]
tokens = 8
)",
                     folder.path(), run);
}

/// Adapters; those of one layer are frozen like the base and its routers.
TEST(Options, AdaptersKilledAndResumed) {
  const TempDir folder;
  write_text(folder / "text.txt", tiny_text(4000));
  const auto run = [&](const std::string& name, const std::string& kill) {
    write_text(folder / (name + ".toml"),
               tiny_recipe(folder / name, folder / "data", folder / "text.txt") +
                   "[model.lora]\nrank = 3\nalpha = 6.0\n[optimizer]\nfreeze = [\"layers.0.*\"]\n");
    return kill_in_child("OptionsChild.*", folder / (name + ".toml"), kill);
  };
  const ProcessResult whole = run("whole", "none");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_NE(whole.output.find("frozen"), std::string::npos) << whole.output;
  for (const int step : {3, 11, 17}) {
    const std::string name = fmt::format("killed{}", step);
    EXPECT_EQ(run(name, fmt::format("optimizer {}", step)).signal, SIGKILL);
    const ProcessResult resumed = run(name, "none");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(difference(folder / "whole", folder / name), "") << step;
  }
}

TEST(Options, KilledAndResumedIsUndisturbed) {
  const TempDir folder;
  write_text(folder / "text.txt", tiny_text(4000));
  const auto run = [&](const std::string& name, const std::string& kill) {
    write_text(folder / (name + ".toml"), recipe_of(folder, name));
    return kill_in_child("OptionsChild.*", folder / (name + ".toml"), kill);
  };
  const ProcessResult whole = run("whole", "none");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  // Batch changes: step 5 passes 200 tokens (48 each) with the loss below 20 from the start; step 3 passes
  // 250 (120 each).
  std::string batches;
  double clipped = 0;
  for (const MetricRow& row : read_metrics(real_file_system(), folder / "whole/metrics.jsonl")) {
    batches += fmt::format("{} ", *row.scalar("batch"));
    clipped += *row.scalar("qk_clipped_heads");
  }
  EXPECT_EQ(batches, "2 2 2 2 2 6 6 6 6 6 6 6 6 6 3 3 3 5 5 5 ");
  EXPECT_GT(clipped, 0);
  EXPECT_NE(whole.output.find("from step 0: 2 sequences"), std::string::npos) << whole.output;
  EXPECT_NE(whole.output.find("from step 5: 4 sequences, lr x 1.41"), std::string::npos) << whole.output;
  EXPECT_NE(whole.output.find("once the loss is 20: 6 sequences, lr x 1.73"), std::string::npos)
      << whole.output;
  EXPECT_NE(whole.output.find("from step 3: 5 sequences, 5 micro-batches of 1"), std::string::npos)
      << whole.output;
  for (const int step : {2, 6, 9, 13, 15, 18}) {
    const std::string name = fmt::format("killed{}", step);
    const ProcessResult killed = run(name, fmt::format("optimizer {}", step));
    EXPECT_EQ(killed.signal, SIGKILL) << killed.output;
    const ProcessResult resumed = run(name, "none");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(difference(folder / "whole", folder / name), "") << step;
  }
}

}  // namespace ingot::test::options_resume_test
