// A step of reinforcement learning in double: its loss and gradient do not depend on how sequences of unequal
// lengths are packed, on micro-batches, or on 1, 2, 4 data ranks, to 1e-12.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads.h"
#include "post/rl/policy_batch.h"
#include "post/rl/policy_objective.h"
#include "support/layout_parity.h"
#include "support/small_models.h"
#include "tape/backward.h"

namespace ingot::test::rl_double_ranks_test {
namespace {

constexpr int64_t kVocabulary = 61;

/// Five groups of four replies of 1 to 11 tokens, recorded by a policy not far from the model; some tokens
/// were forced, one reply was not judged.
std::vector<RolloutGroup> groups_of_many_lengths() {
  const Random random(4, RandomPurpose::test);
  uint64_t draw = 0;
  const auto below = [&](uint64_t n) { return static_cast<int32_t>(random.below(draw++, n)); };
  std::vector<RolloutGroup> groups(5);
  for (RolloutGroup& g : groups) {
    for (int32_t n = 2 + below(4); n > 0; --n) g.prompt.push_back(below(kVocabulary));
    for (int i = 0; i < 4; ++i) {
      Rollout& r = g.rollouts.emplace_back();
      for (int32_t n = 1 + below(11); n > 0; --n) {
        r.ids.push_back(below(kVocabulary));
        r.recorded.push_back(-3.0F - 0.01F * static_cast<float>(below(250)));
        r.forced.push_back(r.ids.size() > 1 && below(6) == 0);
      }
      r.reward = i % 2 == 0 ? 0.25 * below(5) : 0;
    }
    g.rollouts[0].reward = 1;
    set_advantages(g, AdvantageKind::grpo);
  }
  groups[2].rollouts[1].left_out = true;
  set_advantages(groups[2], AdvantageKind::grpo);
  return groups;
}

/// What a reference would say of a token; any numbers that follow from the token alone.
void add_some_reference(data::Batch& batch) {
  std::vector<float> logprobs(batch.targets.size(), 0.0F);
  for (size_t t = 0; t < logprobs.size(); ++t)
    if (batch.targets[t] >= 0)
      logprobs[t] = batch.columns.recorded[t] + 0.05F * static_cast<float>(batch.targets[t] % 9 - 4);
  add_reference(std::move(logprobs), 0.1, batch);
}

struct Step {
  double loss = 0, masked = 0;
  std::vector<Array> gradients;
};

/// Log-probabilities as the objective reads them, in the order of the batch.
std::vector<float> floats_of(const Tensor& t) {
  const Array values = reference::load(t);
  return {values.begin(), values.end()};
}

/// One step on the rank's rows of the batch. The objective sees what it sees in training; products, sums over
/// tokens and over ranks are in double. `world`: nullptr for one rank.
Step step(const std::string& name, const data::Batch& batch, const Objective& objective, int64_t micro,
          World* world) {
  const std::unique_ptr<Model> model = small_model(name, Precision::f64());
  const ParameterTable& table = model->decoder().table();
  GradientBuffer gradients(table, {}, DType::f64);
  std::unique_ptr<RankGroups> groups;
  std::unique_ptr<GradientReducer> reducer;
  const int ranks = world == nullptr ? 1 : world->ranks(), rank = world == nullptr ? 0 : world->rank();
  const int64_t count = batch.rows / (ranks * micro);
  if (world != nullptr) {
    groups =
        std::make_unique<RankGroups>(Grid(GridShape{.dp = ranks}), rank, group_maker(*world), RankOptions{});
    reducer = std::make_unique<GradientReducer>(*groups, table, gradients);
    reducer->begin_step(count);
  }
  gradients.begin_step();
  Array sums(2, 0.0);
  HeapArena arena;
  for (int64_t b = 0; b < count; ++b) {
    const MicroBatch rows = micro_batch(batch, (rank * count + b) * micro, micro);
    Tape tape(arena, {.sink = &gradients});
    Context context{tape, model->weights(), &rows.rows, tape.leaf(rows.positions)};
    model->equip(context);
    StageForward stage(model->decoder(), whole_model(model->config()), context, tape.leaf(rows.ids));
    const HeadResult h = model->decoder().head(context, {.mode = HeadMode::store}, stage.head_input(0),
                                               tape.leaf(rows.targets));
    const std::vector<float> logprob = floats_of(h.logprob_T.tensor()), lse = floats_of(h.lse_T.tensor());
    const ObjectiveResult r = objective.evaluate({.logprob = logprob,
                                                  .lse = lse,
                                                  .targets = {rows.targets.as<int32_t>(), logprob.size()},
                                                  .columns = rows.given});
    sums[0] += r.loss / batch.loss_divisor();
    sums[1] += r.sums.at(1);
    const Array cotangent(r.d_logprob.begin(), r.d_logprob.end());
    tape.seed(h.logprob_T, Tensor::of(cotangent.data(), {static_cast<int64_t>(cotangent.size())}));
    Backward(tape).run();
    if (reducer) reducer->end_micro_batch();
  }
  if (reducer) {
    reducer->finish();
    all_reduce(groups->data(), sums);
  }
  gradients.finish_step();
  Step s{sums[0], sums[1], {}};
  for (int i = 0; i < table.size(); ++i) {
    Array& g = s.gradients.emplace_back(reference::load(gradients.gradient(i)));
    for (double& x : g) x /= batch.loss_divisor();
  }
  return s;
}

/// Of the largest element of any gradient.
void expect_same(const Step& found, const Step& expected) {
  EXPECT_NEAR(found.loss, expected.loss, 1e-12 * std::max(1.0, std::abs(expected.loss)));
  EXPECT_EQ(found.masked, expected.masked);
  double worst = 0, largest = 0;
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < expected.gradients.size(); ++i)
    for (size_t j = 0; j < expected.gradients[i].size(); ++j) {
      worst = std::max(worst, std::abs(found.gradients[i][j] - expected.gradients[i][j]));
      largest = std::max(largest, std::abs(expected.gradients[i][j]));
    }
  EXPECT_GT(largest, 1e-6);
  EXPECT_LE(worst, 1e-12 * largest);
}

data::Batch batch_of(int64_t sequence, Aggregation aggregation) {
  data::Batch b =
      policy_batch(groups_of_many_lengths(),
                   {.sequence = sequence, .multiple = 4, .aggregation = aggregation, .constant = 11});
  add_some_reference(b);
  return b;
}

}  // namespace

class RlDouble : public ::testing::TestWithParam<std::string> {};

TEST_P(RlDouble, LossAndGradientAreThoseOfOneRank) {
  for (const PolicyLossKind kind :
       {PolicyLossKind::reinforce, PolicyLossKind::clip, PolicyLossKind::cispo, PolicyLossKind::dppo})
    for (const Aggregation aggregation : {Aggregation::constant, Aggregation::token, Aggregation::sequence}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(kind), name_of(aggregation)));
      const PolicyLoss rule{.kind = kind, .delta = 0.01, .kl = 0.1};
      const auto objective = policy_objective(rule, false);
      const data::Batch wide = batch_of(48, aggregation), narrow = batch_of(17, aggregation);
      ASSERT_EQ(wide.rows % 4, 0);
      ASSERT_GT(narrow.rows, wide.rows);
      const Step one = step(GetParam(), wide, *objective, wide.rows, nullptr);
      if (kind == PolicyLossKind::clip) {
        EXPECT_GT(one.masked, 0);
      }
      expect_same(step(GetParam(), narrow, *objective, 1, nullptr), one);
      for (const int ranks : {2, 4})
        run_ranks(ranks, [&](ThreadRank& self) {
          set_kernel_policy(KernelPolicy::any);
          expect_same(step(GetParam(), wide, *objective, 1, &self), one);
          if (aggregation == Aggregation::constant)
            expect_same(step(GetParam(), narrow, *objective, 1, &self), one);
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Models, RlDouble, ::testing::Values("llama", "zaya"));

}  // namespace ingot::test::rl_double_ranks_test
