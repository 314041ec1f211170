// Expert choice looks at later tokens: a run must ask for it, and its losses are marked wherever they are
// shown.
#include <gtest/gtest.h>

#include <functional>

#include "base/log.h"
#include "report/report.h"
#include "report/run_record.h"
#include "support/tiny_run.h"
#include "train/step_log.h"
#include "train/trainer.h"

namespace ingot::test::expert_choice_test {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

class ExpertChoice : public ::testing::Test {
 protected:
  ExpertChoice() {
    write_text(folder_ / "text.txt", tiny_text(3000));
    write_text(folder_ / "recipe.toml", tiny_recipe(folder_ / "run", folder_ / "data", folder_ / "text.txt"));
  }
  void run(const std::vector<std::string>& overrides) {
    Trainer(real_file_system(), load_recipe(folder_ / "recipe.toml", overrides), StartMode::resume_or_start)
        .run();
  }
  const std::vector<std::string> choice_ = {"--model.moe.selection=expert_choice",
                                            "--model.moe.capacity_factor=1",
                                            "--model.moe.balance=none",
                                            "--model.moe.skip_class=false",
                                            "--samples.prompts=[]",
                                            "--phases.0.steps=5",
                                            "--phases.1.steps=1"};
  TempDir folder_;
};

TEST_F(ExpertChoice, IsRefusedUnlessFutureTokensAreAllowed) {
  const std::string message = error_of([&] { run(choice_); });
  EXPECT_NE(message.find("model.moe.selection"), std::string::npos) << message;
  EXPECT_NE(message.find("depend on later tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("model.moe.allow_future_tokens = true"), std::string::npos) << message;
}

TEST_F(ExpertChoice, MarksItsLosses) {
  std::vector<std::string> allowed = choice_;
  allowed.push_back("--model.moe.allow_future_tokens=true");
  run(allowed);
  const std::string mark = "later tokens seen (expert choice)";
  const std::vector<MetricRow> rows =
      read_metrics(real_file_system(), (folder_ / "run") + "/" + run_files::kMetrics);
  ASSERT_EQ(rows.size(), 6u);
  for (const MetricRow& row : rows) {
    ASSERT_NE(row.scalar("sees_future_tokens"), nullptr);
    EXPECT_EQ(*row.scalar("sees_future_tokens"), 1);
    EXPECT_NE(step_line(row, 6, 0).find("(losses see later tokens)"), std::string::npos);
  }
  const std::string report = real_file_system().read((folder_ / "run") + "/" + run_files::kReport);
  EXPECT_NE(report.find("nats per token, " + mark), std::string::npos);
  EXPECT_NE(report.find("bits per byte, " + mark), std::string::npos);
}

TEST_F(ExpertChoice, OthersAreNotMarked) {
  run({"--phases.0.steps=5", "--phases.1.steps=1"});
  for (const MetricRow& row : read_metrics(real_file_system(), (folder_ / "run") + "/" + run_files::kMetrics))
    EXPECT_EQ(row.scalar("sees_future_tokens"), nullptr);
  const std::string report = real_file_system().read((folder_ / "run") + "/" + run_files::kReport);
  EXPECT_EQ(report.find("later tokens seen"), std::string::npos);
}

}  // namespace ingot::test::expert_choice_test
