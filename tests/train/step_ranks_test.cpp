// An optimizer step in fp32 on two data ranks: both end with the same bits, and with one rank's weights to
// 1e-6.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads.h"
#include "optim/optimizer.h"
#include "support/layout_parity.h"
#include "tape/backward.h"
#include "train/step.h"

namespace ingot::test::step_ranks_test {

constexpr int64_t kStepRows = 4, kStepLength = 12;

/// Weights after one step from the initial ones; groups == nullptr: one rank.
std::vector<std::vector<float>> weights_after_step(const Decoder& decoder, const data::Batch& batch,
                                                   const RankGroups* groups) {
  const ParameterTable& table = decoder.table();
  WeightSet weights(table, {}, Precision::f32());
  weights.initialize(5);
  GradientBuffer gradients(table, {}, DType::f32);
  gradients.begin_step();
  const int64_t share = groups != nullptr ? kStepRows / groups->batch_ranks() : kStepRows;
  const MicroBatch mb = micro_batch(batch, groups != nullptr ? groups->batch_rank() * share : 0, share);
  HeapArena arena;
  {
    Tape tape(arena, {.sink = &gradients});
    Context c{tape, weights, &mb.rows, tape.leaf(mb.positions)};
    if (groups != nullptr) groups->join(c);
    const Value hidden_TD = decoder.forward(c, tape.leaf(mb.ids)).hidden_TD;
    const HeadResult h = decoder.head(c, {.mode = HeadMode::store}, hidden_TD, tape.leaf(mb.targets));
    std::vector<float> d_logprob(static_cast<size_t>(share * kStepLength), -1.0f);
    tape.seed(h.logprob_T, Tensor::of(d_logprob.data(), {share * kStepLength}));
    Backward(tape).run();
  }
  EXPECT_TRUE(gradients.finish_step().empty());
  if (groups != nullptr) reduce_gradients(*groups, table, gradients);
  std::vector<ParamView> params;
  for (int i = 0; i < table.size(); ++i)
    params.push_back({table[i].name, table[i].shape, table[i].matrices, table[i].row_splits,
                      weights.master(i).as<float>(), gradients.gradient(i).as<float>()});
  Optimizer optimizer({}, params);
  optimizer.step({.lr = 1e-3, .grad_scale = 1 / static_cast<double>(batch.valid_targets)});
  std::vector<std::vector<float>> after;
  for (int i = 0; i < table.size(); ++i) {
    const float* w = weights.master(i).as<float>();
    after.emplace_back(w, w + weights.master(i).numel());
  }
  return after;
}

TEST(OptimizerStep, OnTwoDataRanksEqualsOneRank) {
  const Decoder decoder(small_model_config("llama"));
  const data::Batch batch = packed_batch(kStepRows, kStepLength, {12, 7, 5, 3, 3, 3, 3, 1, 1, 2, 8}, 61);
  const auto one = weights_after_step(decoder, batch, nullptr);
  const Grid grid({.dp = 2});
  std::vector<std::vector<float>> ranks[2];
  run_ranks(2, [&](ThreadRank& self) {
    const RankGroups groups(grid, self.rank(), [&](std::string name, const std::vector<int>& members) {
      return self.group(std::move(name), members);
    });
    ranks[self.rank()] = weights_after_step(decoder, batch, &groups);
  });
  EXPECT_EQ(ranks[0], ranks[1]);
  double worst = 0;
  for (size_t i = 0; i < one.size(); ++i)
    for (size_t j = 0; j < one[i].size(); ++j)
      worst = std::max(worst, std::abs(static_cast<double>(ranks[0][i][j]) - one[i][j]));
  EXPECT_LE(worst, 1e-6);
}

}  // namespace ingot::test::step_ranks_test
