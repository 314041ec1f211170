// Quality of tasks on planted score tables: a good one decides, a noisy, a flat and an inconsistent one do
// not; a run that falls behind a reference is flagged.
#include "eval/quality.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "eval/trajectory.h"

namespace ingot::test::quality_test {

/// Two arms, three seeds, eight steps: chance + slope of the arm x step + noise.
std::vector<ScoreRow> table(const std::string& task, double slope, double noise, bool ranks = true) {
  std::vector<ScoreRow> rows;
  uint64_t n = 0;
  for (const int arm : {0, 1, 2})
    for (const int64_t seed : {1, 2, 3})
      for (int64_t step = 1; step <= 8; ++step) {
        const double better = ranks ? arm : (step % 2 == 0 ? arm : -arm);
        const double score = 0.25 + slope * static_cast<double>(step) * (1 + 0.2 * better) +
                             noise * Random(7, RandomPurpose::test, task.size()).normal(n++);
        rows.push_back({task, "arm" + std::to_string(arm), seed, step * 100, score, 0.25});
      }
  return rows;
}

TEST(Quality, GoodTasksDecideAndNoisyOnesDoNot) {
  std::vector<ScoreRow> rows = table("good", 0.05, 0.005);
  for (const auto& more :
       {table("noisy", 0.002, 0.1), table("guessing", 0, 0.01), table("fickle", 0.05, 0.005, false)})
    rows.insert(rows.end(), more.begin(), more.end());
  const std::vector<TaskQuality> q = judge_tasks(rows);
  ASSERT_EQ(q.size(), 4u);
  EXPECT_TRUE(q[0].decides()) << q[0].faults.front();
  EXPECT_GT(*q[0].monotonicity, 0.95);
  EXPECT_GT(*q[0].signal, 20);
  EXPECT_EQ(*q[0].ranking, 1);
  EXPECT_FALSE(q[1].decides());
  EXPECT_LT(*q[1].signal, kLeastSignal);
  EXPECT_FALSE(q[2].decides());
  EXPECT_FALSE(q[3].decides());
  EXPECT_LT(*q[3].ranking, 0);
}

TEST(Quality, OneSeedCannotJudge) {
  std::vector<ScoreRow> rows = table("good", 0.05, 0.005);
  std::erase_if(rows, [](const ScoreRow& r) { return r.seed != 1; });
  const TaskQuality q = judge_tasks(rows).at(0);
  EXPECT_FALSE(q.seed_noise);
  EXPECT_EQ(q.faults, (std::vector<std::string>{"noise unknown: one seed"}));
}

TEST(Quality, Correlations) {
  EXPECT_EQ(spearman({1, 2, 3, 4}, {10, 20, 30, 90}), 1);
  EXPECT_NEAR(spearman({1, 2, 3, 4, 5}, {2, 1, 4, 3, 5}), 0.8, 1e-15);
  EXPECT_NEAR(spearman({1, 2, 3, 4}, {1, 1, 2, 2}), 0.894427190999916, 1e-14);  // scipy.stats.spearmanr
  EXPECT_NEAR(kendall({1, 2, 3, 4}, {2, 1, 3, 4}), 2.0 / 3, 1e-15);
}

TEST(Quality, TablesAreReadOrRefused) {
  const auto rows = read_score_table(
      "task,arm,seed,step,score,chance\na,x,1,100,0.5,0.25\r\n\na,x,2,100,1e-1,0.25\n", "t.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].score, 0.1);
  const auto message = [](const std::string& text) -> std::string {
    try {
      judge_tasks(read_score_table(text, "t.csv"));
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_NE(message("task,arm,seed,step\n").find("no column 'score'"), std::string::npos);
  EXPECT_NE(message("task,arm,seed,step,score\na,x,1,100\n").find("line 2 has 4 cells, expected 5"),
            std::string::npos);
  EXPECT_NE(message("task,arm,seed,step,score\na,x,1,100,high\n").find("'score' is 'high'"),
            std::string::npos);
  EXPECT_NE(message("task,arm,seed,step,score\na,x,1,100,nan\n").find("the score is nan"), std::string::npos);
  EXPECT_NE(message("task,arm,seed,step,score\na,x,1,1,1\na,x,1,1,1\n").find("twice"), std::string::npos);
  EXPECT_NE(message("").find("no scores"), std::string::npos);
}

std::vector<MetricRow> metrics(double slope, double error) {
  std::vector<MetricRow> rows;
  for (int64_t step = 1; step <= 6; ++step) {
    MetricRow row{.step = step};
    row.set("tokens", 1000.0 * static_cast<double>(step));
    row.set("task/pick/acc", 0.25 + slope * static_cast<double>(step));
    row.set("task/pick/acc_stderr", error);
    row.set("val/text/bits_per_byte", 4 - slope * static_cast<double>(step));
    rows.push_back(row);
  }
  return rows;
}

TEST(Quality, ARunBehindItsReferenceIsFlagged) {
  const auto reference = curves_of(metrics(0.1, 0.01));
  const auto worse = compare_curves(curves_of(metrics(0.05, 0.01)), reference);
  ASSERT_EQ(worse.size(), 2u);
  EXPECT_TRUE(worse[0].behind);
  EXPECT_NEAR(worse[0].ahead, -0.25, 1e-12);  // at 4, 5, 6 thousand tokens: 0.2, 0.25, 0.3
  EXPECT_TRUE(worse[1].behind);               // bits per byte: less is better
  EXPECT_FALSE(compare_curves(curves_of(metrics(0.099, 0.05)), reference)[0].behind);  // within its error
  EXPECT_FALSE(compare_curves(curves_of(metrics(0.12, 0.01)), reference)[0].behind);
  // Published scores, at other tokens.
  const auto published =
      read_reference("score,tokens,value\npick/acc,0,0.25\npick/acc,20000,2.25\n", "p.csv");
  const auto beside = compare_curves(curves_of(metrics(0.05, 0.01)), published);
  ASSERT_EQ(beside.size(), 1u);
  EXPECT_NEAR(beside[0].reference, 0.85, 1e-12);
  EXPECT_TRUE(beside[0].behind);
  EXPECT_THROW(read_reference("pick/acc,1\n", "p.csv"), Error);
  EXPECT_THROW(read_reference("score,tokens,value\npick/acc,2,1\npick/acc,1,1\n", "p.csv"), Error);
}

}  // namespace ingot::test::quality_test
