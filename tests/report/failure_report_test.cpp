// What a run tells of its failure and of its ranks reads back as it was written, for its own start alone.
#include "report/failure_report.h"

#include <gtest/gtest.h>

#include "report/rank_status.h"

namespace ingot::failure_report_test {

TEST(FailureReport, ReadsBack) {
  const FailureReport written{.kind = FailureKind::mismatch,
                              .node = "b",
                              .message = "ranks disagree",
                              .hint = "test the machine",
                              .rank = 2,
                              .step = 20,
                              .trouble_step = 17,
                              .suspects = {{"b", 2}, {"c", 5}},
                              .copies = 3};
  const auto read = FailureReport::parse(written.json(4), 4);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, written.kind);
  EXPECT_EQ(read->node, written.node);
  EXPECT_EQ(read->message, written.message);
  EXPECT_EQ(read->hint, written.hint);
  EXPECT_EQ(read->rank, written.rank);
  EXPECT_EQ(read->step, written.step);
  EXPECT_EQ(read->trouble_step, written.trouble_step);
  EXPECT_EQ(read->suspects, written.suspects);
  EXPECT_EQ(read->copies, written.copies);
  EXPECT_FALSE(FailureReport::parse(written.json(4), 5));
}

TEST(RankStatus, ReadsBack) {
  const RankStatus written{.rank = 3,
                           .host = "n1",
                           .start_step = 4,
                           .save_every = 10,
                           .step = 9,
                           .part = "save",
                           .silent_seconds = 0.5,
                           .step_seconds = 0.25,
                           .busy_seconds = 0.125,
                           .data_wait = 0.75,
                           .saved_seconds = 2,
                           .spike = true};
  const auto read = RankStatus::parse(written.json(4), 4);
  ASSERT_TRUE(read);
  const auto numbers = [](const std::string& json) { return json.substr(json.find("\"start_step\"")); };
  EXPECT_EQ(numbers(read->json(4)), numbers(written.json(4)));
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->host, "n1");
  EXPECT_FALSE(RankStatus::parse(written.json(4), 5));
  EXPECT_FALSE(RankStatus::parse("{\"format\": 1, \"start\"", 4));
}

}  // namespace ingot::failure_report_test
