// Branches of a run: a branch ends with the bits of a straight run under the same schedule; what cannot be
// taken from the trunk is refused by name.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::branch_test {

// One phase of 12 steps under a constant rate, two sources.
std::string recipe_text(const std::string& folder, const std::string& model) {
  return R"([model]
width = 16
layers = 2
heads = 4
kv_heads = 2
head_width = 8
context = 64
)" + model +
         R"([tokenizer]
kind = "characters"
[data]
folder = ")" +
         folder + R"(/data"
[[data.sources]]
name = "words"
path = ")" +
         folder +
         R"(/words.txt"
documents = "blank_line"
validation_fraction = 0.1
[[data.sources]]
name = "more"
path = ")" +
         folder +
         R"(/more.txt"
documents = "blank_line"
validation_fraction = 0.1
[[phases]]
name = "first"
steps = 12
batch = 4
micro_batch = 2
sequence = 24
lr = 1e-2
warmup = 3
schedule = "constant"
[checkpoint]
every = 4
keep_last = 0
[samples]
prompts = []
)";
}

const char* const kDense = "preset = \"llama-small\"\nhidden = 48\n[optimizer]\nmatrices = \"adamw\"\n";
const char* const kExperts =
    "preset = \"zaya-tiny\"\n[model.moe]\nexperts = 4\nhidden = 16\nrouter_width = 8\n[optimizer]\n"
    "matrices = \"muon\"\n";
const char* const kSecond =
    "[[phases]]\nname = \"second\"\nsteps = 6\nbatch = 3\nsequence = 40\nlr = 5e-3\nschedule = \"cosine\"\n"
    "warmup = 0\nweights = [{source = \"words\", weight = 1.0}, {source = \"more\", weight = 3.0}]\n";

class Branch : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    write_text(folder_ / "words.txt", tiny_text(4000));
    write_text(folder_ / "more.txt", tiny_text(3000, 2));
    run("trunk", "");
  }
  /// Trains a run of that name to its end; `more` follows the recipe.
  void run(const std::string& name, const std::string& more, std::vector<std::string> overrides = {}) {
    const std::string path = folder_ / name + ".toml";
    write_text(path, recipe_text(folder_.path(), GetParam()) + more);
    overrides.push_back("--run.folder=" + (folder_ / name));
    Trainer trainer(real_file_system(), load_recipe(path, overrides), StartMode::resume_or_start);
    EXPECT_TRUE(trainer.run().finished);
  }
  std::string step_8() const { return "--run.branch_from=" + (folder_ / "trunk/checkpoints/step-00000008"); }
  std::map<std::string, std::string> content(const std::string& name) const {
    return checkpoint_content(folder_ / name);
  }
  void expect_equal(const std::string& straight, const std::string& branch) {
    EXPECT_EQ(content(straight), content(branch));
    const auto all = losses(folder_ / straight), later = losses(folder_ / branch);
    ASSERT_GT(all.size(), 8u);
    EXPECT_EQ(std::vector<std::string>(all.begin() + 8, all.end()), later);
  }
  void expect_refused(const std::vector<std::string>& overrides, const std::string& words) {
    try {
      run("refused", "", overrides);
      FAIL() << "not refused: " << words;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  }
  TempDir folder_;
};

TEST_P(Branch, UnderAnotherScheduleEqualsAStraightRun) {
  const std::vector<std::string> decays{"--phases.0.steps=16", "--phases.0.schedule=wsd",
                                        "--phases.0.decay_fraction=0.25"};
  run("straight", "", decays);
  std::vector<std::string> branch = decays;
  branch.push_back(step_8());
  run("branch", "", branch);
  expect_equal("straight", "branch");
}

TEST_P(Branch, WithAPhaseOfAnotherMixtureEqualsAStraightRun) {
  run("straight", kSecond, {"--phases.0.steps=8"});
  run("branch", kSecond, {"--phases.0.steps=8", step_8()});
  expect_equal("straight", "branch");
}

TEST_P(Branch, WithAnotherMixtureInsideAPhaseIsReproducible) {
  const std::vector<std::string> other{"--data.sources.1.weight=4", step_8()};
  run("branch", "", other);
  EXPECT_EQ(losses(folder_ / "branch").size(), 4u);
  const auto trunk = losses(folder_ / "trunk");
  EXPECT_NE(losses(folder_ / "branch"), std::vector<std::string>(trunk.begin() + 8, trunk.end()));
  // Begun anew, it branches again.
  std::filesystem::rename(folder_ / "branch", folder_ / "first");
  run("branch", "", other);
  EXPECT_EQ(content("first"), content("branch"));
}

TEST_P(Branch, OptimizersAreKeptResetOrConverted) {
  run("reset", "", {step_8(), "--run.branch_optimizer=reset"});
  run("kept", "", {step_8()});
  EXPECT_EQ(content("trunk"), content("kept")) << "nothing else changed";
  EXPECT_NE(content("trunk"), content("reset"));
  const bool dense = GetParam() == kDense;
  if (dense) {
    expect_refused({step_8(), "--optimizer.matrices=muon"}, ".momentum' cannot be taken");
    run("converted", "", {step_8(), "--optimizer.matrices=muon", "--run.branch_optimizer=convert"});
  } else {
    expect_refused({step_8(), "--optimizer.matrices=adamw", "--run.branch_optimizer=convert"}, "exp_avg");
    expect_refused({step_8(), "--optimizer.muon.form=lerp"}, "optimizer.muon.form was sum and is lerp");
    run("converted", "", {step_8(), "--optimizer.muon.form=lerp", "--run.branch_optimizer=convert"});
  }
  EXPECT_EQ(losses(folder_ / "converted").size(), 4u);
}

TEST_P(Branch, WhatCannotBeABranchIsRefused) {
  expect_refused({step_8(), "--model.width=32", "--model.hidden=64"}, "another model");
  expect_refused({step_8(), "--phases.0.steps=8"}, "stands at step 8, the recipe ends at step 8");
  expect_refused({step_8(), "--run.start_from=" + (folder_ / "trunk")}, "start_from and branch_from");
  expect_refused({"--run.branch_from=" + (folder_ / "nothing")}, "nothing");
}

TEST_P(Branch, TakesAnotherRopeScaling) {
  run("longer", "",
      {step_8(), "--model.rope_scaling.kind=yarn", "--model.rope_scaling.factor=4",
       "--model.rope_scaling.original_context=64", "--model.context=256", "--phases.0.sequence=96",
       "--phases.0.steps=16"});
  EXPECT_EQ(losses(folder_ / "longer").size(), 8u);
}

INSTANTIATE_TEST_SUITE_P(Models, Branch, ::testing::Values(kDense, kExperts),
                         [](const auto& info) { return info.param == kDense ? "Dense" : "Experts"; });

}  // namespace ingot::test::branch_test
