// Metrics that a step collects beside its losses: the residual stream's size by layer, and the routers'
// choices by source of the text.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "nn/weights.h"
#include "support/small_models.h"
#include "train/step.h"

namespace ingot::step_metrics_test {

StepStats stats_of(Model& model, const data::Batch& batch, int64_t micro_batch) {
  model.weights().initialize(7);
  GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
  StepRunner runner(model, gradients);
  return runner.run(batch, {.head = HeadMode::store, .micro_batch = micro_batch});
}

TEST(StepMetrics, TheFirstLayerReceivesTheEmbedding) {
  Model model(test::small_model_config("llama"), Precision::f32());
  const data::Batch batch = test::packed_batch(4, 12, {12, 7, 5, 3, 9, 12}, model.config().vocab);
  const StepStats stats = stats_of(model, batch, 2);
  const Tensor table_VD = model.weights().master(model.decoder().table().find("embed.weight"));
  const int64_t width = table_VD.dim(1);
  double square = 0;
  for (const int32_t id : batch.tokens)
    for (int64_t d = 0; d < width; ++d) square += std::pow(table_VD.as<float>()[id * width + d], 2);
  square /= static_cast<double>(static_cast<int64_t>(batch.tokens.size()) * width);
  ASSERT_EQ(stats.residual_square.size(), static_cast<size_t>(model.config().layers));
  EXPECT_NEAR(stats.residual_square.at(0), square, 1e-4 * square) << "the statistics are fp32";
  EXPECT_GT(stats.residual_square.at(1), 1.01 * square) << "the first layer adds to it";
}

TEST(StepMetrics, ChoicesOfTheSourcesAddUpToThoseOfTheBatch) {
  Model model(test::small_model_config("moe"), Precision::f32());
  data::Batch batch = test::packed_batch(4, 12, {12, 7, 5, 3, 9, 12}, model.config().vocab);
  EXPECT_TRUE(stats_of(model, batch, 1).source_expert_counts.empty()) << "one source";
  batch.origins[1].source = batch.origins[2].source = 1;
  const StepStats stats = stats_of(model, batch, 1);
  ASSERT_FALSE(stats.source_expert_counts.empty());
  for (const auto& [layer, counts] : stats.source_expert_counts) {
    const auto& all = stats.expert_counts.at(layer);
    ASSERT_EQ(counts.size(), 2 * all.size());
    for (size_t e = 0; e < all.size(); ++e) EXPECT_EQ(counts[e] + counts[all.size() + e], all[e]) << e;
    const int64_t choices = 24 * model.config().moe.top_k;
    EXPECT_EQ(
        std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(all.size()), int64_t{0}),
        choices)
        << "two rows of twelve tokens";
  }
  for (size_t row = 0; row < 4; ++row) batch.origins[row].source = 1 - batch.origins[row].source;
  for (const auto& [layer, counts] : stats_of(model, batch, 2).source_expert_counts) {
    const auto& before = stats.source_expert_counts.at(layer);
    const size_t experts = counts.size() / 2;
    for (size_t i = 0; i < counts.size(); ++i)
      EXPECT_EQ(counts[i], before[(i + experts) % counts.size()]) << i;
  }
}

}  // namespace ingot::step_metrics_test
