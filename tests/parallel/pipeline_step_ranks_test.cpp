// Optimizer steps in fp32 on a pipeline of two: the copies of a tied matrix keep the same bits, and all
// weights are one rank's to 1e-5 after ten steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "comm/threads.h"
#include "optim/optimizer.h"
#include "parallel/pipeline.h"
#include "support/small_models.h"
#include "tape/backward.h"
#include "train/step.h"

namespace ingot::test::pipeline_step_ranks_test {

constexpr int64_t kRows = 4, kLength = 12;
constexpr int kSteps = 10;

/// Sum of the next token's losses over the rows of a micro-batch.
class NextToken final : public PipelineStep {
 public:
  NextToken(const Decoder& decoder, const WeightSet& weights, Tape& tape, const data::Batch& batch,
            int64_t first, int64_t count)
      : decoder_(decoder),
        tape_(tape),
        rows_(micro_batch(batch, first, count)),
        context_{tape, weights, &rows_.rows, tape.leaf(rows_.positions)},
        ids_T_(tape.leaf(rows_.ids)),
        d_logprob_(static_cast<size_t>(rows_.rows.count), -1.0f) {}
  Context& context() override { return context_; }
  std::vector<Value> forward(const StageParts& parts, const std::vector<Value>& received) override {
    StageForward stage(decoder_, parts, context_, ids_T_, received);
    const Value hidden_TD = stage.head_input(0);
    if (!parts.loss) return stage.live_values();
    const HeadResult h =
        decoder_.head(context_, {.mode = HeadMode::store}, hidden_TD, tape_.leaf(rows_.targets));
    tape_.seed(h.logprob_T, Tensor::of(d_logprob_.data(), {rows_.rows.count}));
    return {};
  }

 private:
  const Decoder& decoder_;
  Tape& tape_;
  MicroBatch rows_;
  Context context_;
  Value ids_T_;
  std::vector<float> d_logprob_;
};

/// Weights by name after the steps, of one rank of a pipeline; pipe == nullptr: of the whole model.
std::map<std::string, std::vector<float>> train(const Decoder& decoder, const PipelineGroups* pipe) {
  const ParameterTable& table = decoder.table();
  const Placement placement = pipe != nullptr ? pipe->placement({}) : Placement{};
  WeightSet weights(table, placement, Precision::f32());
  weights.initialize(5);
  GradientBuffer gradients(table, placement, DType::f32);
  Optimizer optimizer({}, optimizer_views(weights, gradients));
  HeapArena arena;
  for (int step = 0; step < kSteps; ++step) {
    const data::Batch batch = packed_batch(kRows, kLength, {12, 7, 5, 3, 3, 3, 3, 1, 1, 2, 8}, 61,
                                           100 + static_cast<uint64_t>(step));
    gradients.begin_step();
    if (pipe != nullptr) {
      const Pipeline pipeline(
          decoder, weights.precision(), *pipe,
          make_pipeline_schedule(PipelineScheduleKind::zero_bubble, {2, 1, static_cast<int>(kRows)}));
      pipeline.run(
          [&](Tape& tape, int b) { return std::make_unique<NextToken>(decoder, weights, tape, batch, b, 1); },
          kLength, {.sink = &gradients}, arena);
    } else {
      Tape tape(arena, {.sink = &gradients});
      NextToken all(decoder, weights, tape, batch, 0, kRows);
      all.forward(whole_model(decoder.config()), {});
      Backward(tape).run();
    }
    EXPECT_TRUE(gradients.finish_step().empty());
    if (pipe != nullptr) pipe->sum_over_stages(gradients);
    optimizer.step({.lr = 1e-3, .grad_scale = 1 / static_cast<double>(batch.valid_targets)});
  }
  std::map<std::string, std::vector<float>> after;
  for (int i = 0; i < table.size(); ++i)
    if (const Tensor w = weights.master(i); w.numel() > 0)
      after[table[i].name] = {w.as<float>(), w.as<float>() + w.numel()};
  return after;
}

TEST(PipelineSteps, KeepCopiesEqualAndFollowOneRank) {
  const Decoder decoder(small_model_config("gpt2"));
  const auto one = train(decoder, nullptr);
  std::map<std::string, std::vector<float>> stages[2];
  run_ranks(2, [&](ThreadRank& self) {
    const GroupMaker make = [&](std::string name, const std::vector<int>& members) {
      return self.group(std::move(name), members);
    };
    const PipelineGroups pipe(Grid({.pp = 2}), self.rank(), make, even_pipeline_layout(2, 1, 3, 0),
                              decoder.table());
    stages[self.rank()] = train(decoder, &pipe);
  });
  EXPECT_EQ(stages[0].at("embed.weight"), stages[1].at("embed.weight"));
  EXPECT_EQ(stages[0].size() + stages[1].size(), one.size() + 1);
  for (const auto& stage : stages)
    for (const auto& [name, found] : stage) {
      const std::vector<float>& expected = one.at(name);
      ASSERT_EQ(found.size(), expected.size()) << name;
      double worst = 0;
      const size_t third = name.ends_with("qkv.bias") ? found.size() / 3 : 0;
      for (size_t i = 0; i < found.size(); ++i) {
        // Keys' biases have no gradient but rounding (softmax does not see them), which Adam makes whole
        // steps of.
        if (third > 0 && i / third == 1) continue;
        worst = std::max(worst, static_cast<double>(std::abs(found[i] - expected[i])));
      }
      EXPECT_LE(worst, 1e-5) << name;
    }
}

}  // namespace ingot::test::pipeline_step_ranks_test
