// Pipeline schedules as tables: for many shapes a table can run and takes the time and memory of the closed
// formulas ([1F1B] §2.2), and broken tables are detected.
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/pipeline_simulator.h"
#include "support/support.h"

namespace ingot::pipeline_schedule_test {

using enum PipelineScheduleKind;

Simulation run(PipelineScheduleKind kind, const PipelineShape& shape, const StageCost& cost = {}) {
  return simulate(make_pipeline_schedule(kind, shape), even_costs(shape, cost));
}

std::vector<int> falling(int from, int step, int ranks) {
  std::vector<int> v;
  for (int r = 0; r < ranks; ++r) v.push_back(from - step * r);
  return v;
}

TEST(PipelineSchedule, PublishedVectors) {
  struct Row {
    PipelineScheduleKind kind;
    PipelineShape shape;
    double time;
    std::vector<int> peak;
  };
  const std::vector<Row> rows = {
      {one_forward_one_backward, {4, 1, 8}, 33, falling(4, 1, 4)},
      {one_forward_one_backward, {8, 1, 32}, 117, falling(8, 1, 8)},
      {interleaved, {4, 2, 8}, 28.5, falling(11, 2, 4)},
      {interleaved, {4, 4, 128}, 386.25, falling(19, 2, 4)},
      {interleaved, {8, 4, 128}, 389.25, falling(39, 2, 8)},
      {interleaved, {16, 2, 32}, 118.5, falling(47, 2, 16)},
      {merged, {4, 2, 8}, 28.5, falling(12, 2, 4)},
      {merged, {8, 4, 128}, 389.25, falling(40, 2, 8)},
      {zero_bubble, {4, 1, 8}, 27, {4, 4, 4, 4}},
  };
  for (const Row& row : rows) {
    const Simulation s = run(row.kind, row.shape);
    EXPECT_DOUBLE_EQ(s.time, row.time) << name_of(row.kind) << ", " << row.shape.str();
    EXPECT_EQ(s.peak_live, row.peak) << name_of(row.kind) << ", " << row.shape.str();
  }
  EXPECT_NEAR(run(zero_bubble, {8, 1, 32}, {1, 1.2, 0.8}).time, 105.8, 1e-9);
}

TEST(PipelineSchedule, MergedShareAndWhatTheExtraForwardIsFor) {
  const PipelineShape shape{8, 4, 128};
  const Simulation s = run(merged, shape);
  EXPECT_DOUBLE_EQ(s.merged_pairs / (8.0 * 512), 0.9375);
  // Without it, the last rank's steady pairs of one (micro-batch, chunk) are as many as micro-batches.
  const auto rows = make_pipeline_schedule(interleaved, shape).ranks.back();
  int own = 0;
  for (size_t i = 0; i + 1 < rows.size(); ++i)
    own += rows[i].work.kind == WorkKind::forward && rows[i + 1].work.kind == WorkKind::backward &&
           rows[i].work.micro_batch == rows[i + 1].work.micro_batch &&
           rows[i].work.chunk == rows[i + 1].work.chunk;
  EXPECT_EQ(own, shape.micro_batches);
}

/// Shapes that a kind has, with p <= 6, v <= 4, m <= 14 and groups of up to p + 3.
template <class Visit>
int for_all_shapes(PipelineScheduleKind kind, Visit visit) {
  int count = 0;
  const bool one_chunk = kind == one_forward_one_backward || kind == zero_bubble;
  for (int p = 1; p <= 6; ++p)
    for (int v = 1; v <= (one_chunk ? 1 : 4); ++v)
      for (int m = 1; m <= 14; ++m)
        for (int g = p; g <= (v == 1 ? p : p + 3); ++g) {
          const bool several = m > g && m % g != 0 && m % g < p;
          if (v > 1 && several) {
            EXPECT_THROW(make_pipeline_schedule(kind, {p, v, m, g}), Error);
            continue;
          }
          visit(PipelineShape{p, v, m, g});
          ++count;
        }
  return count;
}

TEST(PipelineSchedule, EveryShapeRunsInTheTimeAndMemoryOfTheFormulas) {
  const StageCost cost{1, 1.25, 0.75};
  for (const PipelineScheduleKind kind : {one_forward_one_backward, interleaved, zero_bubble, merged}) {
    const int shapes = for_all_shapes(kind, [&](const PipelineShape& s) {
      const Simulation r = run(kind, s, cost);
      const double work = s.micro_batches * (cost.forward + cost.backward());
      for (const double busy : r.busy) EXPECT_NEAR(busy, work, 1e-9);
      const bool even = s.micro_batches % s.stages == 0 && s.group == s.stages;
      const double fill = s.stages - 1;
      if (kind == zero_bubble && s.micro_batches >= s.stages) {
        EXPECT_NEAR(r.time, work + fill * (cost.forward + cost.backward_input - cost.backward_weight), 1e-9)
            << s.str();
      }
      if (kind == one_forward_one_backward || ((kind == interleaved || kind == merged) && even)) {
        EXPECT_NEAR(r.time, work + fill * (cost.forward + cost.backward()) / s.chunks, 1e-9)
            << name_of(kind) << s.str();
      }
      for (int rank = 0; rank < s.stages; ++rank) {
        const int below = s.stages - rank - 1, all = s.micro_batches * s.chunks;
        const int across = 2 * below + (s.chunks - 1) * s.group + 1;
        const int expected = kind == zero_bubble                                 ? s.stages
                             : kind == merged                                    ? across + 1
                             : kind == one_forward_one_backward || s.chunks == 1 ? below + 1
                                                                                 : across;
        EXPECT_EQ(r.peak_live[static_cast<size_t>(rank)], std::min(expected, all))
            << name_of(kind) << s.str();
      }
    });
    EXPECT_GE(shapes, 84) << name_of(kind);
  }
}

TEST(PipelineSchedule, TransfersAndUnequalStagesLengthenIt) {
  const PipelineShape shape{4, 1, 8};
  const PipelineSchedule table = make_pipeline_schedule(one_forward_one_backward, shape);
  std::vector<StageCost> costs = even_costs(shape, {});
  EXPECT_GT(simulate(table, costs, 0.5).time, 33);
  costs[2].forward = 2;
  const Simulation s = simulate(table, costs);
  EXPECT_DOUBLE_EQ(s.busy[2], 32);
  EXPECT_GE(s.time, 2 + 32 + 4);  // two forwards before it, two backwards behind it
  EXPECT_NEAR(s.bubble(), (s.time - 32) / 32, 1e-12);
}

TEST(PipelineSchedule, ShapesThatAKindDoesNotHave) {
  EXPECT_THROW(make_pipeline_schedule(one_forward_one_backward, {2, 2, 4}), Error);
  EXPECT_THROW(make_pipeline_schedule(zero_bubble, {2, 2, 4}), Error);
  EXPECT_THROW(make_pipeline_schedule(interleaved, {4, 2, 8, 3}), Error);
  EXPECT_THROW(make_pipeline_schedule(interleaved, {4, 2, 5}), Error);
  EXPECT_THROW(make_pipeline_schedule(interleaved, {0, 1, 1}), Error);
  EXPECT_THROW(make_pipeline_schedule(interleaved, {1, 1, 0}), Error);
}

TEST(PipelineSchedule, OrderOfGroups) {
  const std::vector<std::pair<int, int>> expected = {{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1},
                                                     {2, 1}, {3, 0}, {4, 0}, {3, 1}, {4, 1}};
  EXPECT_EQ(chunk_order({2, 2, 5, 3}), expected);
}

TEST(PipelineSchedule, Print) {
  EXPECT_EQ(make_pipeline_schedule(one_forward_one_backward, {2, 1, 3}).str(),
            "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2\n");
  EXPECT_EQ(make_pipeline_schedule(zero_bubble, {2, 1, 2}).str(), "F0 F1 I0 W0 I1 W1\nF0 I0 F1 I1 W0 W1\n");
  EXPECT_EQ(make_pipeline_schedule(merged, {1, 1, 3}).str(), "F0 F1+B0 F2+B1 B2\n");
}

/// A sound table, spoilt.
void expect_refused(const std::string& why, const std::function<void(PipelineSchedule&)>& spoil) {
  PipelineSchedule s = make_pipeline_schedule(interleaved, {2, 2, 4});
  spoil(s);
  try {
    simulate(s, even_costs(s.shape, {}));
    ADD_FAILURE() << "not noticed: " << why;
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
  }
}

TEST(PipelineSchedule, BrokenTablesAreNoticed) {
  expect_refused("is not complete", [](PipelineSchedule& s) { s.ranks[0].pop_back(); });
  expect_refused("waits for ever", [](PipelineSchedule& s) { s.ranks[1].erase(s.ranks[1].begin()); });
  expect_refused("waits for ever",
                 [](PipelineSchedule& s) { std::swap(s.ranks[0].front(), s.ranks[0].back()); });
  expect_refused("runs twice",
                 [](PipelineSchedule& s) { s.ranks[0].insert(s.ranks[0].begin(), s.ranks[0].front()); });
  expect_refused("does not exist", [](PipelineSchedule& s) { s.ranks[1][0].work.chunk = 2; });
  expect_refused("messages of an edge cross",
                 [](PipelineSchedule& s) { std::swap(s.ranks[0][0], s.ranks[0][1]); });
  expect_refused("merged with its own backward", [](PipelineSchedule& s) {
    s.ranks[1].back() = {{WorkKind::forward, 0, 0}, Work{WorkKind::backward, 0, 0}};
  });
  expect_refused("beside", [](PipelineSchedule& s) { s.ranks[0].front().beside = s.ranks[0][1].work; });
}

}  // namespace ingot::pipeline_schedule_test
