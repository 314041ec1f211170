// An interrupt ends validation and tasks at once: the step is saved without them, the run that resumes does
// them first, and ends with the bits and rows of an undisturbed run.
#include <gtest/gtest.h>

#include "data/dataset.h"
#include "report/metrics.h"
#include "support/tiny_run.h"
#include "train/prepare.h"
#include "train/trainer.h"
#include "train/validation.h"

namespace ingot::test::interrupted_validation_runs_test {

/// Interrupts once a step is trained, before it is validated.
class AfterStep final : public RunObserver {
 public:
  explicit AfterStep(int64_t step) : left_(step) {}
  void enters(StepPart part) override {
    if (part == StepPart::records && --left_ == 0) Trainer::interrupt();
  }
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}

 private:
  int64_t left_;
};

class InterruptedValidation : public ::testing::Test {
 protected:
  InterruptedValidation() { write_text(folder_ / "text.txt", tiny_text(3000)); }
  Recipe recipe(const std::string& name) const {
    write_text(folder_ / "recipe.toml", tiny_recipe(folder_ / name, folder_ / "data", folder_ / "text.txt"));
    return load_recipe(folder_ / "recipe.toml",
                       {"--evaluation.every=3", "--phases.0.steps=6", "--phases.1.steps=2"});
  }
  /// Ends after `step` steps of this start; 0: where the run ends.
  TrainResult run(const std::string& name, int64_t step = 0) const {
    AfterStep stop(step);
    Trainer trainer(real_file_system(), recipe(name), StartMode::resume_or_start);
    trainer.observe(&stop);
    return trainer.run();
  }
  std::vector<MetricRow> rows(const std::string& name) const {
    return read_metrics(real_file_system(), folder_ / name + "/" + run_files::kMetrics);
  }
  TempDir folder_;
};

TEST_F(InterruptedValidation, IsMadeUpForByTheRunThatResumes) {
  ASSERT_TRUE(run("whole").finished);
  const std::vector<MetricRow> whole = rows("whole");
  for (const int64_t step : {3, 6, 8}) {  // inside a phase, at its end, at the end of the run
    SCOPED_TRACE(step);
    const std::string name = "stopped-" + std::to_string(step);
    TrainResult result = run(name, step);
    EXPECT_FALSE(result.finished);
    EXPECT_EQ(result.step, step) << "the step is saved";
    EXPECT_EQ(rows(name).size(), static_cast<size_t>(step) - 1);
    result = run(name);
    EXPECT_TRUE(result.finished);
    EXPECT_EQ(difference(folder_ / "whole", folder_ / name), "");
    const std::vector<MetricRow> made = rows(name);
    ASSERT_EQ(made.size(), whole.size());
    for (size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].step, whole[i].step);
      const double *found = made[i].scalar("val/words/loss"), *expected = whole[i].scalar("val/words/loss");
      ASSERT_EQ(found != nullptr, expected != nullptr) << made[i].step;
      if (found != nullptr) {
        EXPECT_EQ(*found, *expected) << made[i].step;
      }
    }
    const double *before = made[static_cast<size_t>(step) - 2].scalar("training_seconds"),
                 *after = made[static_cast<size_t>(step) - 1].scalar("training_seconds"),
                 *seconds = made[static_cast<size_t>(step) - 1].scalar("step_seconds");
    EXPECT_NEAR(*after, *before + *seconds, 1e-9) << "the clock counts the step once";
    const std::string bytes = read_text(folder_ / name + "/" + run_files::kMetrics);
    EXPECT_TRUE(run(name).finished);
    EXPECT_EQ(read_text(folder_ / name + "/" + run_files::kMetrics), bytes) << "a finished run stays";
  }
}

TEST_F(InterruptedValidation, MayBeInterruptedAgain) {
  ASSERT_TRUE(run("whole").finished);
  ASSERT_FALSE(run("again", 8).finished);
  for (const bool begins : {false, true}) {  // before the validation is taken up again, and in it
    Trainer trainer(real_file_system(), recipe("again"), StartMode::resume_or_start);
    EXPECT_FALSE(trainer.finished());
    AfterStep stop(1);
    if (begins)
      trainer.observe(&stop);
    else
      Trainer::interrupt();
    EXPECT_FALSE(trainer.run().finished);
    EXPECT_EQ(rows("again").size(), 7u);
  }
  EXPECT_TRUE(run("again").finished);
  EXPECT_EQ(difference(folder_ / "whole", folder_ / "again"), "");
}

TEST_F(InterruptedValidation, EndsBetweenBatches) {
  const Recipe given = recipe("unused");
  const PreparedData data = prepare_data(real_file_system(), given);
  const RunRanks ranks(given, nullptr);
  TrainEngine engine(with_vocabulary(given, data), ranks);
  const PhaseConfig& phase = engine.recipe().phases[0];
  int asked = 0;
  const auto score = [&](int stop_at) {
    asked = 0;
    return validate(engine, data.sources[0], phase, 0, [&] { return ++asked == stop_at; });
  };
  ASSERT_TRUE(score(0).has_value());
  const int batches = asked;
  ASSERT_GE(batches, 2);
  EXPECT_FALSE(score(2).has_value());
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(score(batches).has_value());
}

}  // namespace ingot::test::interrupted_validation_runs_test
