// The balance loss of the global scope: counts run over the micro-batches of a step and start anew with the
// next. Formula: ops/route/route.h.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/route/route.h"
#include "support/small_models.h"
#include "tape/backward.h"
#include "train/step.h"

namespace ingot::test::running_counts_test {

constexpr int64_t kRows = 6, kLength = 12, kDocument = 12;

/// Two micro-batches of three tokens, top 2 of 3 experts, counted by hand.
TEST(RunningCounts, TheLossIsAHandComputation) {
  const double rows[2][9] = {{3, 1, 0, 2, 0, 1, 4, 3, 1}, {0, 1, 2, 0, 3, 1, 1, 0, 2}};
  // Choices of the first: {0, 1}, {0, 2}, {0, 1}; of the second: {1, 2}, {1, 2}, {0, 2}.
  const float chosen[2][3] = {{3, 2, 1}, {1, 2, 3}};
  std::vector<float> before(4, 0);  // and of how many micro-batches
  for (int m = 0; m < 2; ++m) {
    const RouteAttr attr{
        .score = RouteScore::softmax_first, .experts = 3, .k = 2, .load_tokens = m == 0 ? 0 : 3};
    double probs[6], aux, z, entropy, d_aux = 1, d_logits[9];
    int32_t ids[6];
    float counts[3];
    const Tensor in[] = {Tensor::of(rows[m], {3, 3}), {}, {}, {}, Tensor::of(before.data(), {4})};
    const Tensor out[] = {Tensor::of(probs, {3, 2}), Tensor::of(ids, {3, 2}), Tensor::of(counts, {3}),
                          Tensor::of(&aux, {1}),     Tensor::of(&z, {1}),     Tensor::of(&entropy, {1})};
    const Kernel& reference = route_op().kernels.back();
    reference.forward({&attr, in, out, {}, {}});
    double p[3][3], expected = 0;
    for (int t = 0; t < 3; ++t) {
      const double* l = rows[m] + 3 * t;
      const double sum = std::exp(l[0]) + std::exp(l[1]) + std::exp(l[2]);
      for (int e = 0; e < 3; ++e) p[t][e] = std::exp(l[e]) / sum;
    }
    double share[3];  // of all choices so far
    for (int e = 0; e < 3; ++e) {
      EXPECT_EQ(counts[e], chosen[m][e]);
      share[e] = (before[static_cast<size_t>(e)] + static_cast<double>(chosen[m][e])) / (6.0 * (m + 1));
      expected += 3.0 / 3.0 * share[e] * (p[0][e] + p[1][e] + p[2][e]);
    }
    EXPECT_NEAR(aux, expected, 1e-14) << m;
    const Tensor d_out[] = {{}, {}, {}, Tensor::of(&d_aux, {1}), {}, {}};
    const GradSlot d_in[] = {{Tensor::of(d_logits, {3, 3}), false}, {}, {}, {}, {}};
    reference.backward_input({&attr, in, out, d_out, d_in});
    for (int t = 0; t < 3; ++t) {
      const double mean = share[0] * p[t][0] + share[1] * p[t][1] + share[2] * p[t][2];
      for (int e = 0; e < 3; ++e) EXPECT_NEAR(d_logits[3 * t + e], p[t][e] * (share[e] - mean), 1e-14);
    }
    for (size_t e = 0; e < 3; ++e) before[e] += chosen[m][e];
    ++before[3];
  }
}

/// Choices of each expert by layer, from the recorded routes.
std::map<int64_t, std::vector<float>> choices_of(const Tape& tape, int64_t experts) {
  std::map<int64_t, std::vector<float>> found;
  for (const Metric& m : tape.metrics()) {
    if (m.name != "router_ids") continue;
    std::vector<float>& of_layer = found[m.layer];
    of_layer.resize(static_cast<size_t>(experts));
    const auto* ids = m.value.tensor().as<int32_t>();
    for (int64_t i = 0; i < m.value.tensor().numel(); ++i) of_layer[static_cast<size_t>(ids[i])] += 1;
  }
  return found;
}

double aux_loss_of(const Tape& tape) {
  double sum = 0;
  for (const Metric& m : tape.metrics())
    if (m.name == "router_aux_loss") sum += *m.value.tensor().as<float>();
  return sum;
}

std::unique_ptr<Model> model_of(AuxScope scope) {
  ModelConfig config = small_model_config("moe");
  config.moe.aux_coefficient = 0.5;
  config.moe.aux_scope = scope;
  auto model = std::make_unique<Model>(config, Precision::f32());
  model->weights().initialize(5);
  return model;
}

/// The losses of a batch's micro-batches of two rows.
std::vector<double> losses_of(const Model& model, const data::Batch& batch, RunningCounts& running) {
  std::vector<double> losses;
  GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
  gradients.begin_step();
  StepStats stats;
  const StepOptions options;
  std::map<int64_t, std::vector<float>> sums;
  for (int64_t first = 0; first < batch.rows; first += 2) {
    HeapArena arena;
    Tape tape(arena, {.sink = &gradients});
    StepReads reads(cpu_device());
    MicroStep step(model, tape, std::make_shared<const MicroBatch>(micro_batch(batch, first, 2)), options, {},
                   &stats, running, reads);
    step.forward(whole_model(model.config()), {});
    for (const auto& [layer, choices] : choices_of(tape, model.config().moe.experts)) {
      std::vector<float>& sum = sums[layer];
      sum.resize(choices.size());
      for (size_t e = 0; e < choices.size(); ++e) sum[e] += choices[e];
    }
    losses.push_back(aux_loss_of(tape));
    Backward(tape).run();
    if (!running.used()) continue;
    EXPECT_EQ(running.layers().size(), sums.size());
    for (const auto& [layer, counts_E1] : running.layers()) {
      std::vector<float> expected = sums.at(layer);
      expected.push_back(static_cast<float>(first / 2 + 1));
      EXPECT_EQ(counts_E1, expected) << layer;
    }
  }
  return losses;
}

TEST(RunningCounts, GrowWithTheMicroBatchesOfAStep) {
  const data::Batch batch =
      packed_batch(kRows, kLength, std::vector<int64_t>(kRows * kLength / kDocument, kDocument), 61);
  const auto global = model_of(AuxScope::global), own = model_of(AuxScope::micro_batch);
  RunningCounts running(*global), none(*own);
  EXPECT_FALSE(none.used());
  const std::vector<double> with = losses_of(*global, batch, running), without = losses_of(*own, batch, none);
  EXPECT_EQ(with[0], without[0]);
  EXPECT_NE(with[1], without[1]);
  EXPECT_NE(with[2], without[2]);
  RunningCounts next(*global);
  EXPECT_EQ(losses_of(*global, batch, next), with) << "a step starts without counts";
}

}  // namespace ingot::test::running_counts_test
