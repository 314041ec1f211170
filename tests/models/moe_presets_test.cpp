// The fifteen mixtures of the Smol Training Playbook's table: those that are presets have the experts, widths
// and numbers of parameters that are published, and those of closed forms; the others are refused with the
// reason.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "models/decoder.h"
#include "models/presets.h"

namespace ingot::test::moe_presets_test {

/// A row of the table, and what its authors publish, in billions of parameters; 0: not stated.
struct Published {
  const char* preset;
  double experts, chosen, sparsity, granularity;  ///< shared experts in both
  double total, active, bar = 0.009;
};
constexpr Published kRows[] = {
    {"mixtral", 8, 2, 4.0, 0.571, 46.7, 12.9},     {"grok-1", 8, 2, 4.0, 0, 314, 0},
    {"olmoe", 64, 8, 8.0, 4.0, 6.9, 1.3},          {"glm-4.5-air", 129, 9, 14.3, 5.8, 106, 12},
    {"qwen3-moe", 128, 8, 16, 5.3, 30.5, 3.3},     {"qwen3-235b", 128, 8, 16, 5.3, 235, 22},
    {"glm-4.5", 161, 9, 17.8, 6.6, 355, 32},       {"deepseek-v3", 257, 9, 28.6, 7.0, 671, 37},
    {"kimi-k2", 385, 9, 42.8, 7.0, 1000, 32, 0.03}};

TEST(MoePresets, HaveTheExpertsOfTheTable) {
  for (const Published& row : kRows) {
    const ModelConfig m = model_preset(row.preset);
    const double shared = static_cast<double>(m.moe.shared_hidden) / static_cast<double>(m.moe.hidden);
    EXPECT_EQ(static_cast<double>(m.moe.experts) + shared, row.experts) << row.preset;
    EXPECT_EQ(static_cast<double>(m.moe.top_k) + shared, row.chosen) << row.preset;
    EXPECT_NEAR(row.experts / row.chosen, row.sparsity, 0.0055 * row.sparsity) << row.preset;
    if (row.granularity > 0) {  // printed with one decimal, cut off
      EXPECT_NEAR(2.0 * static_cast<double>(m.width) / static_cast<double>(m.moe.hidden), row.granularity,
                  0.0105 * row.granularity)
          << row.preset;
    }
  }
}

/// Authors differ in what they count: GLM's leave the embedding out of what is active and add a prediction
/// layer to the total; Grok's leave it out of the total; Kimi's is printed as 1T. The bars hold all of that.
TEST(MoePresets, HaveThePublishedNumbersOfParameters) {
  for (const Published& row : kRows) {
    const ParameterCounts n = count_parameters(Decoder(model_preset(row.preset)));
    EXPECT_NEAR(1e-9 * static_cast<double>(n.total), row.total, row.bar * row.total) << row.preset;
    if (row.active == 0) continue;
    const auto least = 1e-9 * static_cast<double>(n.active_without_embedding),
               most = 1e-9 * static_cast<double>(n.active_without_embedding + n.embedding);
    EXPECT_GE(row.active * 1.02, least) << row.preset;
    EXPECT_LE(row.active * 0.98, most) << row.preset;
  }
}

struct Shape {
  int64_t width, layers, attention;        ///< attention: weights of a layer, norms of its latents and heads
  int64_t experts, hidden, shared, dense;  ///< dense: width of the MLP of the first layers
  int64_t first_dense, vocab, norms = 2;
  bool tied = false;
};
int64_t closed_form(const Shape& s) {
  const int64_t moe = 3 * s.width * (s.experts * s.hidden + s.shared) + s.width * s.experts;
  return s.layers * (s.attention + s.norms * s.width) + s.first_dense * 3 * s.width * s.dense +
         (s.layers - s.first_dense) * moe + s.width + (s.tied ? 1 : 2) * s.vocab * s.width;
}
int64_t grouped(int64_t width, int64_t heads, int64_t kv, bool bias = false) {
  return 2 * width * heads * 128 + 2 * width * kv * 128 + (bias ? (heads + 2 * kv) * 128 : 0);
}

TEST(MoePresets, CountAsTheirClosedForms) {
  const auto count = [](const char* preset) { return count_parameters(Decoder(model_preset(preset))).total; };
  EXPECT_EQ(count("olmoe"),
            closed_form({2048, 16, grouped(2048, 16, 16) + 2 * 2048, 64, 1024, 0, 0, 0, 50304}));
  EXPECT_EQ(count("olmoe"), 6919161856);
  EXPECT_EQ(count("grok-1"),
            closed_form({6144, 64, grouped(6144, 48, 8), 8, 32768, 0, 0, 0, 131072, 4, true}));
  EXPECT_EQ(count("glm-4.5-air"),
            closed_form({4096, 46, grouped(4096, 96, 8, true), 128, 1408, 1408, 10944, 1, 151552}));
  EXPECT_EQ(count("glm-4.5"),
            closed_form({5120, 92, grouped(5120, 96, 8, true) + 2 * 128, 160, 1536, 1536, 12288, 3, 151552}));
  const int64_t latent =
      7168 * 1536 + 1536 + 1536 * 64 * 192 + 7168 * 576 + 512 + 512 * 64 * 256 + 64 * 128 * 7168;
  EXPECT_EQ(count("kimi-k2"), closed_form({7168, 61, latent, 384, 2048, 2048, 18432, 1, 163840}));
  EXPECT_EQ(count("kimi-k2"), 1026408209408);
}

TEST(MoePresets, TheOthersOfTheTableAreRefusedWithTheReason) {
  const std::pair<const char*, const char*> outside[] = {
      {"grok-2", "router's logits"}, {"gpt-oss-20b", "sinks"},       {"gpt-oss-120b", "sinks"},
      {"step-3", "from a latent"},   {"deepseek-v2", "best expert"}, {"qwen3-next-80b", "delta rules"}};
  EXPECT_EQ(std::size(kRows) + std::size(outside), 15u) << "models of the table";
  for (const auto& [name, reason] : outside) {
    try {
      model_preset(name);
      ADD_FAILURE() << name << " is a preset";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.hint()).find("docs/moe.md"), std::string::npos) << e.hint();
    }
  }
}

/// Its source has beta_fast = beta_slow = 1, an empty range; a millionth more turns every pair the same way.
TEST(MoePresets, KimisRotationIsThatOfItsSource) {
  const RopeScalingConfig s = model_preset("kimi-k2").rope_scaling;
  const auto dim = [](double turns) {
    return 64 * std::log(4096 / (turns * 2 * M_PI)) / (2 * std::log(50000.0));
  };
  EXPECT_EQ(std::floor(dim(s.beta_fast)), std::floor(dim(1)));
  EXPECT_EQ(std::ceil(dim(s.beta_slow)), std::ceil(dim(1)));
}

}  // namespace ingot::test::moe_presets_test
