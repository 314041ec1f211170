// The laws of the step simulator: without transfers it is the simulation of the table; costs only add time;
// the parts of a rank's time are the step; overlap hides what it can and no more.
#include "plan/step_simulator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "parallel/pipeline_simulator.h"

namespace ingot::test::step_simulator_test {

using enum PipelineScheduleKind;

void expect_adds_up(const StepTime& t) {
  for (const RankTime& r : t.ranks) EXPECT_NEAR(r.sum(), t.seconds, 1e-9 * t.seconds);
}

/// A schedule with whole passes as one kernel each.
StepInput plain_step(PipelineSchedule schedule, const std::vector<double>& forward,
                     const std::vector<double>& backward_input, const std::vector<double>& backward_weight) {
  StepInput input;
  input.schedule = std::move(schedule);
  const auto one = [](double seconds) {
    return TimedProgram{{PassStep::Kind::compute, TimeOf::products, seconds, 0, -1}};
  };
  for (size_t s = 0; s < forward.size(); ++s)
    input.stages.push_back({one(forward[s]), one(backward_input[s] + backward_weight[s]),
                            one(backward_input[s]), one(backward_weight[s])});
  return input;
}

std::vector<double> repeated(int n, double value) {
  return std::vector<double>(static_cast<size_t>(n), value);
}

/// Every shape that a schedule has, with unequal stages.
TEST(StepSimulator, WithoutTransfersItIsTheTablesSimulation) {
  int shapes = 0;
  for (const PipelineScheduleKind kind : {one_forward_one_backward, interleaved, zero_bubble, merged})
    for (int p = 1; p <= 6; ++p)
      for (int v = 1; v <= 4; ++v)
        for (int m = 1; m <= 14; ++m) {
          PipelineSchedule schedule;
          try {
            schedule = make_pipeline_schedule(kind, {p, v, m});
          } catch (const Error&) {
            continue;  // no such shape
          }
          std::vector<double> f, b, w;
          std::vector<StageCost> costs;
          for (int s = 0; s < p * v; ++s) {
            f.push_back(1 + 0.1 * (s % 3)), b.push_back(1.1 + 0.2 * (s % 2)), w.push_back(0.9);
            costs.push_back({f.back(), b.back(), w.back()});
          }
          for (const double message : {0.0, 0.25}) {
            StepInput input = plain_step(schedule, f, b, w);
            input.message = message;
            const StepTime found = simulate_step(input);
            const Simulation expected = simulate(schedule, costs, message);
            EXPECT_NEAR(found.seconds, expected.time, 1e-9) << schedule.shape.str();
            EXPECT_EQ(found.merged_pairs, expected.merged_pairs);
            for (size_t r = 0; r < found.ranks.size(); ++r)
              EXPECT_EQ(found.ranks[r].live, expected.peak_live[r]);
            expect_adds_up(found);
          }
          ++shapes;
        }
  EXPECT_GT(shapes, 300);
}

struct PublishedRow {
  PipelineScheduleKind kind;
  int p, v, m;
  double f, b, w, time;
  int first_live;
};

TEST(StepSimulator, ThePublishedTableOfSchedules) {
  const PublishedRow rows[] = {
      {one_forward_one_backward, 4, 1, 8, 1, 1, 1, 33, 4},
      {one_forward_one_backward, 8, 1, 32, 1, 1, 1, 117, 8},
      {interleaved, 4, 2, 8, 1, 1, 1, 28.5, 11},
      {interleaved, 4, 4, 128, 1, 1, 1, 386.25, 19},
      {interleaved, 8, 4, 128, 1, 1, 1, 389.25, 39},
      {interleaved, 16, 2, 32, 1, 1, 1, 118.5, 47},
      {zero_bubble, 4, 1, 8, 1, 1, 1, 27, 4},
      {zero_bubble, 8, 1, 32, 1, 1.2, 0.8, 105.8, 8},
      {merged, 8, 4, 128, 1, 1, 1, 389.25, 40},
  };
  for (const PublishedRow& r : rows) {
    const int stages = r.p * r.v;
    const StepTime t =
        simulate_step(plain_step(make_pipeline_schedule(r.kind, {r.p, r.v, r.m}), repeated(stages, r.f / r.v),
                                 repeated(stages, r.b / r.v), repeated(stages, r.w / r.v)));
    EXPECT_NEAR(t.seconds, r.time, 1e-9) << r.p << " " << r.v << " " << r.m;
    EXPECT_EQ(t.ranks.front().live, r.first_live);
  }
}

/// 8 x 4 with 128 micro-batches: 93.75 % of all passes are merged.
TEST(StepSimulator, ShareOfMergedPasses) {
  const StepTime t = simulate_step(plain_step(make_pipeline_schedule(merged, {8, 4, 128}), repeated(32, 0.25),
                                              repeated(32, 0.25), repeated(32, 0.25)));
  EXPECT_NEAR(static_cast<double>(t.merged_pairs) / (8 * 4 * 128), 0.9375,
              0.004);  // the table starts one forward later
}

TimedStep kernel(double seconds) {
  return {PassStep::Kind::compute, TimeOf::products, seconds, 0, -1};
}
TimedStep transfer(double seconds, int handle = -1, int channel = 0) {
  return {PassStep::Kind::transfer, TimeOf::exchanges, seconds, channel, handle};
}
TimedStep wait_for(int handle) {
  return {PassStep::Kind::wait, TimeOf::exchanges, 0, 0, handle};
}

StepInput one_rank(PipelineScheduleKind kind, int m, TimedProgram forward, TimedProgram backward) {
  StepInput input;
  input.schedule = make_pipeline_schedule(kind, {1, 1, m});
  input.stages.push_back({std::move(forward), std::move(backward), {}, {}});
  return input;
}

TEST(StepSimulator, ATransferThatIsWaitedForLaterIsHidden) {
  const StepTime blocking = simulate_step(
      one_rank(one_forward_one_backward, 3, {kernel(1), transfer(0.5), kernel(1)}, {kernel(4)}));
  EXPECT_NEAR(blocking.seconds, 3 * 6.5, 1e-9);
  EXPECT_NEAR(blocking.ranks[0].exposed.at("links"), 1.5, 1e-9);
  const StepTime hidden = simulate_step(one_rank(
      one_forward_one_backward, 3, {kernel(1), transfer(0.5, 0), kernel(1), wait_for(0)}, {kernel(4)}));
  EXPECT_NEAR(hidden.seconds, 3 * 6, 1e-9);
  const StepTime partly = simulate_step(one_rank(
      one_forward_one_backward, 3, {kernel(1), transfer(1.5, 0), kernel(1), wait_for(0)}, {kernel(4)}));
  EXPECT_NEAR(partly.seconds, 3 * 6.5, 1e-9);
  for (const StepTime& t : {blocking, hidden, partly}) expect_adds_up(t);
}

TEST(StepSimulator, ATransferSlowsTheKernelsBesideIt) {
  StepInput input = one_rank(one_forward_one_backward, 3,
                             {kernel(1), transfer(0.5, 0), kernel(1), wait_for(0)}, {kernel(4)});
  input.beside = 0.8;
  const StepTime slowed = simulate_step(input);
  EXPECT_NEAR(slowed.seconds, 3 * 6.1, 1e-9) << "half a second at .8 of the rate loses .1";
  EXPECT_NEAR(slowed.ranks[0].exposed.at("links"), 0.3, 1e-9);
  expect_adds_up(slowed);
  input.stages[0][0] = {kernel(1), transfer(1.5, 0), kernel(1), wait_for(0)};
  EXPECT_NEAR(simulate_step(input).seconds, 3 * 6.5, 1e-9)
      << "the kernel ends before the transfer, which is waited for";
  input = one_rank(one_forward_one_backward, 4, {kernel(1)}, {kernel(2)});
  input.ends = {{{0.5, 0.5, 0.5, 0.5}, 0, 0, 0}};
  input.beside = 0.8;
  // Written at 0.5, 1.1, 1.7 and 2.3 of what was a backward of 2.
  EXPECT_NEAR(simulate_step(input).seconds, 12.8, 1e-9);
  expect_adds_up(simulate_step(input));
}

/// Where the processor that computes also sends, a transfer hides behind nothing.
TEST(StepSimulator, ATransferMayTakeTheProcessor) {
  StepInput input = one_rank(one_forward_one_backward, 3,
                             {kernel(1), transfer(0.5, 0), kernel(1), wait_for(0)}, {kernel(4)});
  input.beside = 0;
  EXPECT_NEAR(simulate_step(input).seconds, 3 * 6.5, 1e-9);
  expect_adds_up(simulate_step(input));
  input = one_rank(one_forward_one_backward, 4, {kernel(1)}, {kernel(2)});
  input.ends = {{{0.5, 0.5, 0.5, 0.5}, 0, 0, 0}};
  input.beside = 0;
  EXPECT_NEAR(simulate_step(input).seconds, 12 + 4 * 0.5, 1e-9);
  expect_adds_up(simulate_step(input));
}

/// What one stage's waits leave of a processor the other has: two stages of six seconds of work, 9 s apart.
TEST(StepSimulator, RanksThatShareProcessorsUseEachOthersWaits) {
  const auto step = [](int micro_batches, double ranks_per_core) {
    StepInput input = plain_step(make_pipeline_schedule(one_forward_one_backward, {2, 1, micro_batches}),
                                 repeated(2, 1), repeated(2, 1), repeated(2, 1));
    input.ranks_per_core = ranks_per_core, input.traces = true;
    StepTime t = simulate_step(input);
    expect_adds_up(t);
    double last = 0;
    for (const WorkSpan& span : t.spans) last = std::max(last, span.end);
    EXPECT_NEAR(last, t.seconds, 1e-9);
    return t;
  };
  EXPECT_NEAR(step(2, 1).seconds, 9, 1e-9);
  EXPECT_NEAR(step(2, 2).seconds, 6, 1e-9);
  EXPECT_NEAR(step(2, 2).ranks[0].bubble, 0, 1e-9);
  EXPECT_NEAR(step(1, 2).seconds, 3, 1e-9) << "one after the other, each at twice its rate";
  const StepTime chain = step(1, 1.5);
  EXPECT_NEAR(chain.seconds, 4, 1e-9) << "the chain of 6 s at one and a half times the rate";
  EXPECT_NEAR(chain.ranks[0].bubble, 1, 1e-9);
}

/// Merged passes compute while the other waits: with many micro-batches nothing stays exposed in the middle.
TEST(StepSimulator, MergedPassesHideEachOthersTransfers) {
  const TimedProgram forward = {kernel(1), transfer(1), kernel(1)},
                     backward = {kernel(2), transfer(1), kernel(2)};
  const StepTime apart = simulate_step(one_rank(one_forward_one_backward, 32, forward, backward));
  const StepTime together = simulate_step(one_rank(merged, 32, forward, backward));
  EXPECT_NEAR(apart.seconds, 32 * 8, 1e-9);
  EXPECT_LT(together.seconds, 32 * 6 + 8);
  EXPECT_GE(together.seconds, 32 * 6);
  expect_adds_up(together);
}

/// As those of a run: a pass that waits for tensor ranks keeps its turn while the other waits for experts on
/// other nodes, so that its own exchange with them begins early.
TEST(StepSimulator, MergedPassesKeepTheirTurnAtAShorterWait) {
  StepInput input = one_rank(merged, 2, {kernel(1)}, {kernel(1)});
  input.stages[0][0] = {kernel(1), transfer(0.25, -1, 1), kernel(1), transfer(4), kernel(1)};
  input.stages[0][1] = {transfer(4), kernel(5)};
  input.channels = {"expert across nodes", "tensor"};
  // A forward alone 7.25; of the pair 4 of transfer beside 2.25 of forward, 4 more beside 5 of backward, 1 of
  // forward; a backward alone 9.
  EXPECT_NEAR(simulate_step(input).seconds, 7.25 + 10 + 9, 1e-9);
  input.channels = {"expert across nodes", "expert"};  // yields, and begins its exchange behind the backward
  EXPECT_NEAR(simulate_step(input).seconds, 7.25 + 15 + 9, 1e-9);
}

TEST(StepSimulator, MoreCostIsNeverLess) {
  const auto step = [](double kernel_seconds, double link, double message, double bucket, double slow,
                       double beside) {
    StepInput input;
    input.schedule = make_pipeline_schedule(interleaved, {4, 2, 8});
    for (int s = 0; s < 8; ++s)
      input.stages.push_back({TimedProgram{kernel(kernel_seconds), transfer(link), kernel(1)},
                              TimedProgram{kernel(2), transfer(link, 0), kernel(1), wait_for(0)},
                              {},
                              {}});
    input.message = message;
    input.ends.assign(4, StepEnd{{bucket, bucket}, 0.5, 0.25, 0});
    input.slow = {1, slow, 1, 1};
    input.beside = beside;
    const StepTime t = simulate_step(input);
    expect_adds_up(t);
    return t.seconds;
  };
  for (const double beside : {1.0, 0.8, 0.0}) {
    const double base = step(1, 0.2, 0.1, 0.3, 1, beside);
    EXPECT_LE(step(1, 0.2, 0.1, 0.3, 1, 1), base);
    for (double more = 1.1; more < 4; more *= 1.3) {
      EXPECT_GE(step(more, 0.2, 0.1, 0.3, 1, beside), base);
      EXPECT_GE(step(1, 0.2 * more, 0.1, 0.3, 1, beside), base);
      EXPECT_GE(step(1, 0.2, 0.1 * more, 0.3, 1, beside), base);
      EXPECT_GE(step(1, 0.2, 0.1, 0.3 * more, 1, beside), base);
      EXPECT_GT(step(1, 0.2, 0.1, 0.3, more, beside), base) << "a slow rank holds the others up";
    }
  }
}

TEST(StepSimulator, SumsOfGradientsRunBesideTheLastBackward) {
  StepInput input = one_rank(one_forward_one_backward, 4, {kernel(1)}, {kernel(2)});
  input.ends = {{{0.5, 0.5, 0.5, 0.5}, 0, 0, 0}};
  // Written at 0.5, 1, 1.5 and 2 of the last backward: all but the last sum is hidden.
  EXPECT_NEAR(simulate_step(input).seconds, 12.5, 1e-9);
  input.ends = {{{1, 1, 1, 1}, 0, 0, 0}};
  EXPECT_NEAR(simulate_step(input).seconds, 12 - 2 + 0.5 + 4, 1e-9);
  input.ends = {{{0.5}, 0.25, 0.125, 0}};
  EXPECT_NEAR(simulate_step(input).seconds, 12.875, 1e-9);
}

}  // namespace ingot::test::step_simulator_test
