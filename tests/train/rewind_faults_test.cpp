// A run that diverges on planted batches: the checkpoint from before stays, and the command that the error
// prints goes back, leaves the batches out, and ends with the bits of a run that never saw them.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "base/philox.h"
#include "checkpoint/reader.h"
#include "report/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::rewind_faults_test {

namespace fs = std::filesystem;

constexpr int64_t kFirstBad = 44, kBad = 6;  // steps, from 1

std::string recipe_text(const std::string& run, const std::string& data, const std::string& text) {
  return fmt::format(R"([run]
folder = "{}"
seed = 3
[model]
preset = "zaya-tiny"
width = 16
layers = 2
heads = 4
kv_heads = 2
head_width = 8
context = 64
[model.moe]
experts = 4
hidden = 16
router_width = 8
[tokenizer]
kind = "characters"
[data]
folder = "{}"
end_of_text = false
[[data.sources]]
name = "words"
path = "{}"
documents = "whole_file"
validation_fraction = 0.0
[[phases]]
steps = 60
batch = 4
sequence = 24
lr = 1e-2
warmup = 3
[checkpoint]
every = 6
keep_last = 1
[samples]
every = 20
prompts = ["the "]
tokens = 8
[health]
spike_sigma = 0.5
spike_patience = {}
)",
                     run, data, text, kBad);
}

/// Replaces what the bad steps read by characters that the rest of the text does not have.
std::string poisoned(std::string text, const std::vector<int64_t>& first_tokens, int64_t length) {
  const std::string strange = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&()*+,-/:;<=>?@[]^_{|}~";
  const Random random(7, RandomPurpose::test);
  uint64_t n = 0;
  for (const int64_t begin : first_tokens)
    for (int64_t i = 0; i < length; ++i)
      text.at(static_cast<size_t>(begin + i)) = strange[random.below(n++, strange.size())];
  return text;
}

class Rewinding : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    const std::string clean = tiny_text(3000);
    write_text(at("clean.txt"), clean);
    write_text(at("clean.toml"), recipe_text(at("clean"), at("clean-data"), at("clean.txt")));
    const Recipe recipe = load_recipe(at("clean.toml"), {});
    const PreparedData data = prepare_data(real_file_system(), recipe);
    const PhaseSampler sampler(recipe, data);
    std::vector<int64_t> first_tokens;
    for (int64_t step = kFirstBad; step < kFirstBad + kBad; ++step)
      for (const data::RowOrigin& origin : sampler.batch(step - 1).origins)
        first_tokens.push_back(origin.first_token);
    write_text(at("text.txt"), poisoned(clean, first_tokens, recipe.phases[0].sequence));
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string at(const std::string& name) { return *folder_ / name; }
  static std::string recipe(const std::string& name) {
    write_text(at(name) + ".toml", recipe_text(at(name), at("data"), at("text.txt")));
    return at(name) + ".toml";
  }
  static ProcessResult ingot(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> command{INGOT_BINARY, "run", recipe(name)};
    command.insert(command.end(), more.begin(), more.end());
    return run_process(command);
  }
  /// A run that is stopped after `steps` steps, by Ctrl-C as it were.
  static void stop_after(const std::string& name, int64_t steps) {
    struct Stop final : RunObserver {
      explicit Stop(int64_t s) : left(s) {}
      void tensor(const std::string&, const Tensor&) override {}
      void enters(StepPart part) override {
        if (part == StepPart::data && --left == 0) Trainer::interrupt();
      }
      int64_t left;
    } stop(steps);
    Trainer trainer(real_file_system(), load_recipe(recipe(name), {}), StartMode::resume_or_start);
    trainer.observe(&stop);
    EXPECT_EQ(trainer.run().step, steps);
  }
  static std::vector<int64_t> steps_of(const std::string& name) {
    std::vector<int64_t> steps;
    for (const CheckpointPlace& c : list_checkpoints(real_file_system(), at(name) + "/checkpoints"))
      steps.push_back(c.step);
    return steps;
  }
  static inline std::unique_ptr<TempDir> folder_;
};

/// The command that an error prints, or "".
std::string printed_command(const std::string& output) {
  std::smatch found;
  return std::regex_search(output, found, std::regex(R"(\n  (\S*ingot .*)\n)")) ? found[1].str() : "";
}

ProcessResult as_printed(const std::string& command) {
  const std::string path = fs::path(INGOT_BINARY).parent_path();
  return run_process({"/bin/bash", "-c", "PATH='" + path + "':$PATH; cd /; " + command});
}

TEST_F(Rewinding, OnePrintedCommandEndsWithTheBitsOfARunThatNeverSawTheBatches) {
  const ProcessResult bad = ingot("bad");
  ASSERT_EQ(bad.exit_code, 1) << bad.output;
  EXPECT_NE(bad.output.find("the loss has been far above its mean"), std::string::npos) << bad.output;
  EXPECT_NE(bad.output.find("for 6 steps"), std::string::npos) << bad.output;
  // One was saved since then and is kept, and so is the last from before the spike.
  EXPECT_EQ(steps_of("bad"), (std::vector<int64_t>{48, 42}));
  const std::string command = printed_command(bad.output);
  EXPECT_NE(command.find("--from 42 --skip-batches 7"), std::string::npos) << bad.output;
  const ProcessResult back = as_printed(command);
  ASSERT_EQ(back.exit_code, 0) << back.output;

  stop_after("never", 42);
  const ProcessResult rest = ingot("never", {"--from", "42", "--skip-batches", "7"});
  ASSERT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_EQ(difference(at("never"), at("bad")), "");
  EXPECT_EQ(losses(at("bad")).size(), 60u);
  EXPECT_EQ(rest.output.find("is a spike"), std::string::npos) << rest.output;
  // Batches do count: without the skip the run is another.
  stop_after("other", 42);
  ASSERT_EQ(ingot("other", {"--health.spike_sigma=0"}).exit_code, 0);
  EXPECT_NE(difference(at("never"), at("other")), "");
}

TEST_F(Rewinding, AReturnIsDurableAndCanBeRepeated) {
  const std::vector<std::string> back{
      "--from", "12", "--skip-batches", "3", "--checkpoint.keep_last=0", "--health.spike_sigma=0"};
  ASSERT_EQ(ingot("twice", {"--checkpoint.keep_last=0", "--health.spike_sigma=0"}).exit_code, 0);
  ASSERT_EQ(ingot("twice", back).exit_code, 0);
  const auto once = checkpoint_content(at("twice"));
  const std::vector<std::string> rows = losses(at("twice"));
  // Again: to the checkpoint of the run, not to the one that the return has made, so three batches are left
  // out and not six.
  const ProcessResult again = ingot("twice", back);
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(checkpoint_content(at("twice")), once);
  EXPECT_EQ(losses(at("twice")), rows);
  // Killed as soon as it has gone back, it resumes without the flags where it went back to.
  struct Die final : RunObserver {
    void tensor(const std::string&, const Tensor&) override {}
    void enters(StepPart part) override {
      if (part == StepPart::data) throw Error("killed");
    }
  } die;
  {
    Trainer trainer(real_file_system(), load_recipe(recipe("twice"), {"--checkpoint.keep_last=0"}),
                    StartMode::resume_or_start, nullptr, {12, 3});
    trainer.observe(&die);
    EXPECT_THROW(trainer.run(), Error);
  }
  const ProcessResult resumed = ingot("twice", {"--checkpoint.keep_last=0", "--health.spike_sigma=0"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("resuming at step 12 of 60"), std::string::npos) << resumed.output;
  EXPECT_EQ(checkpoint_content(at("twice")), once);
  EXPECT_EQ(losses(at("twice")), rows);
}

TEST_F(Rewinding, AWatchInASpikeIsResumed) {
  stop_after("spike", 45);
  const ProcessResult r = ingot("spike");
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_NE(r.output.find("for 6 steps"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("at step 49"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("--from 42 --skip-batches 7"), std::string::npos) << r.output;
}

TEST_F(Rewinding, WhatCannotBeGoneBackToIsRefused) {
  stop_after("refused", 10);
  const auto refuses = [&](const std::vector<std::string>& flags, const std::string& part, int code) {
    const ProcessResult r = ingot("refused", flags);
    EXPECT_EQ(r.exit_code, code) << r.output;
    EXPECT_NE(r.output.find(part), std::string::npos) << r.output;
  };
  refuses({"--from", "7"}, "has no complete checkpoint of step 7", 1);
  refuses({"--from", "7"}, "it has those of steps 10", 1);
  refuses({"--from", "60"}, "the run ends at step 60", 1);
  const auto usage = [&](const std::vector<std::string>& flags) {
    const ProcessResult r = ingot("refused", flags);
    EXPECT_NE(r.exit_code, 0) << r.output;
    EXPECT_EQ(r.output.find("step 11/"), std::string::npos) << r.output;
  };
  usage({"--skip-batches", "2"});
  usage({"--from", "0"});
  usage({"--from", "10", "--skip-batches", "-1"});
  usage({"--from", "10", "--fresh"});
}

}  // namespace ingot::test::rewind_faults_test
