// The training clock and the target of a phase: noted once, with the step and the training time, and a run
// can end there.
#include <gtest/gtest.h>

#include <functional>

#include "report/run_record.h"
#include "support/tiny_run.h"
#include "train/trainer.h"
#include "train/training_clock.h"

namespace ingot::test::training_target_runs_test {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

class TrainingTarget : public ::testing::Test {
 protected:
  TrainingTarget() {
    write_text(folder_ / "text.txt", tiny_text(3000));
    write_text(folder_ / "recipe.toml", tiny_recipe(folder_ / "run", folder_ / "data", folder_ / "text.txt"));
  }
  TrainResult run(std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"--evaluation.every=3", "--phases.0.steps=7", "--phases.1.steps=2"});
    return Trainer(real_file_system(), load_recipe(folder_ / "recipe.toml", overrides),
                   StartMode::resume_or_start)
        .run();
  }
  std::vector<MetricRow> rows() const {
    return read_metrics(real_file_system(), (folder_ / "run") + "/" + run_files::kMetrics);
  }
  const std::vector<std::string> target_ = {"--phases.0.target_source=words", "--phases.0.target_loss=100"};
  static constexpr const char* kNote = "target/first/training_seconds";
  TempDir folder_;
};

TEST_F(TrainingTarget, IsNotedOnceByAClockThatCountsStepsOnly) {
  EXPECT_TRUE(run(target_).finished);
  const std::vector<MetricRow> all = rows();
  ASSERT_EQ(all.size(), 9u);
  double sum = 0;
  for (const MetricRow& row : all) {
    sum += *row.scalar("step_seconds");
    EXPECT_NEAR(*row.scalar("training_seconds"), sum, 1e-9) << row.step;
    const double* note = row.scalar(kNote);
    ASSERT_EQ(note != nullptr, row.step == 3) << row.step;
    if (note != nullptr) {
      EXPECT_EQ(*note, *row.scalar("training_seconds"));
    }
  }
  const std::string report = real_file_system().read((folder_ / "run") + "/" + run_files::kReport);
  EXPECT_NE(report.find("training time to the target of first, step 3"), std::string::npos);
}

TEST_F(TrainingTarget, EndsTheRunWhereAsked) {
  std::vector<std::string> ends = target_;
  ends.push_back("--phases.0.target_ends=true");
  TrainResult result = run(ends);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.step, 3);
  result = run(ends);
  EXPECT_TRUE(result.finished) << "the run stays ended";
  EXPECT_EQ(result.step, 3);
  EXPECT_EQ(rows().size(), 3u);
  result = run({});
  EXPECT_TRUE(result.finished) << "without the target it continues";
  EXPECT_EQ(result.step, 9);
  const std::vector<MetricRow> all = rows();
  ASSERT_EQ(all.size(), 9u);
  EXPECT_NEAR(*all[3].scalar("training_seconds"),
              *all[2].scalar("training_seconds") + *all[3].scalar("step_seconds"), 1e-9)
      << "the clock continues";
}

TEST_F(TrainingTarget, OutOfReachIsNotNoted) {
  EXPECT_TRUE(
      run({"--phases.0.target_source=words", "--phases.0.target_loss=0.001", "--phases.0.target_ends=true"})
          .finished);
  for (const MetricRow& row : rows()) EXPECT_EQ(row.scalar(kNote), nullptr);
}

TEST_F(TrainingTarget, WhatCannotBeIsRefused) {
  const auto message = [&](const std::vector<std::string>& overrides) {
    return error_of([&] { load_recipe(folder_ / "recipe.toml", overrides); });
  };
  EXPECT_NE(message({"--phases.0.target_loss=3"}).find("target_loss needs a source with validation text"),
            std::string::npos);
  EXPECT_NE(message({"--phases.0.target_ends=true"}).find("there is no target"), std::string::npos);
  EXPECT_NE(message({target_[0], "--phases.0.target_loss=-1"}).find("must not be negative"),
            std::string::npos);
  EXPECT_NE(message({target_[0], target_[1], "--evaluation.every=0"}).find("would not be seen"),
            std::string::npos);
}

TEST(TrainingClock, ContinuesFromItsRows) {
  TrainingClock clock;
  MetricRow row;
  row.step = 1;
  clock.count(2.5, row);
  row.set("val/web/loss", 3.0);
  PhaseConfig phase{.name = "phase 1"};
  phase.target_source = "web", phase.target_loss = 3.0;
  EXPECT_TRUE(clock.reaches(phase, row));
  TrainingClock later;
  later.restore(TrainingClock::state_of({row}));
  EXPECT_EQ(later.seconds(), 2.5);
  EXPECT_FALSE(later.reaches(phase, row));
  phase.target_ends = true;
  const std::vector<PhaseConfig> phases = {phase};
  EXPECT_EQ(later.ended_by(phases), &phases[0]);
}

}  // namespace ingot::test::training_target_runs_test
