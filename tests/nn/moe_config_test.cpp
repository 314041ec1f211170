// The MoE section of a model: messages for what cannot be, counts of presets and of latent experts.
#include <gtest/gtest.h>

#include <functional>

#include "models/decoder.h"
#include "models/presets.h"
#include "support/support.h"

namespace ingot::test::moe_config_test {

ModelConfig small(const std::function<void(MoeConfig&)>& change = {}) {
  ModelConfig m = model_preset("moe-small");  // 8 experts, top 2, normalised softmax
  m.vocab = 61;
  if (change) change(m.moe);
  return m;
}

void expect_message(const std::function<void(MoeConfig&)>& change, const std::string& part) {
  std::string found;
  try {
    Decoder decoder(small(change));
  } catch (const Error& e) {
    found = std::string(e.what()) + " | " + e.hint();
  }
  EXPECT_NE(found.find(part), std::string::npos) << "wanted: " << part << "\nfound: " << found;
}

TEST(MoeConfig, ErrorsSayWhatToDo) {
  expect_message([](MoeConfig& m) { m.experts = -1; }, "must not be negative, found -1");
  expect_message([](MoeConfig& m) { m.top_k = 9; }, "between 1 and experts = 8, found 9");
  expect_message([](MoeConfig& m) { m.top_k = 1; }, "one weight divided by itself is always 1");
  expect_message([](MoeConfig& m) { m.top_k = 1, m.score = RouteScore::softmax_last; }, "use softmax_first");
  expect_message([](MoeConfig& m) { m.groups = 3; }, "experts = 8 cannot be cut into 3 equal groups");
  expect_message([](MoeConfig& m) { m.groups = 4, m.groups_kept = 5; }, "between 1 and groups = 4, found 5");
  expect_message([](MoeConfig& m) { m.groups = 4, m.groups_kept = 3, m.top_k = 4; },
                 "top_k = 4 must be a multiple of groups_kept = 3");
  expect_message([](MoeConfig& m) { m.groups = 8, m.groups_kept = 2, m.top_k = 4; },
                 "hold 2, fewer than top_k = 4");
  expect_message([](MoeConfig& m) { m.score = RouteScore::sigmoid, m.skip_class = true; },
                 "share of a softmax");
  expect_message([](MoeConfig& m) { m.scale = 0; }, "must be positive");
  expect_message([](MoeConfig& m) { m.latent = -4; }, "must not be negative");
}

TEST(MoeConfig, SelectionsThatSeeTheBatchSayWhatTheyExclude) {
  expect_message([](MoeConfig& m) { m.capacity_factor = -1; }, "must not be negative, found -1");
  expect_message([](MoeConfig& m) { m.pad_to_capacity = true; }, "capacity_factor is 0; set it");
  const auto sinkhorn = [](const std::function<void(MoeConfig&)>& change) {
    return [change](MoeConfig& m) {
      m.selection = AssignRule::sinkhorn, m.normalize = false, m.aux_coefficient = 0;
      change(m);
    };
  };
  EXPECT_NO_THROW(Decoder(small(sinkhorn([](MoeConfig&) {}))));
  expect_message(sinkhorn([](MoeConfig& m) { m.aux_coefficient = 1e-2; }),
                 "sinkhorn balances the load itself; use 0");
  expect_message(sinkhorn([](MoeConfig& m) { m.balance = BalanceRule::sign; }), "use none");
  expect_message(sinkhorn([](MoeConfig& m) { m.normalize = true; }), "takes the weights as they are");
  expect_message(sinkhorn([](MoeConfig& m) { m.top_k = 1; }), "weights are sigmoid for top_k = 1");
  expect_message(sinkhorn([](MoeConfig& m) { m.capacity_factor = 1; }), "evens the load out");
  const auto choice = [&](const std::function<void(MoeConfig&)>& change) {
    return sinkhorn([change](MoeConfig& m) {
      m.selection = AssignRule::expert_choice, m.capacity_factor = 1;
      change(m);
    });
  };
  EXPECT_NO_THROW(Decoder(small(choice([](MoeConfig&) {}))));
  expect_message(choice([](MoeConfig& m) { m.capacity_factor = 0; }), "is what an expert takes");
  expect_message(choice([](MoeConfig& m) { m.groups = 2; }), "chooses among all experts");
  expect_message(choice([](MoeConfig& m) { m.score = RouteScore::softmax_last; }),
                 "use softmax_first or sigmoid");
}

TEST(MoeConfig, PresetsHaveThePublishedCounts) {
  const ParameterCounts n = count_parameters(Decoder(model_preset("mixtral")));
  EXPECT_EQ(n.total, 46702792704);
  EXPECT_EQ(n.active + n.embedding / 2, 12879925248);  // with the embedding, as published: 12.9 B
  EXPECT_EQ(count_parameters(Decoder(model_preset("qwen3-moe"))).total, 30532122624);
}

// Experts of latent width l have 3 E F l + 2 D l parameters ([Megatron-MoE] §7.3).
TEST(MoeConfig, LatentExpertsAreCountedAsTheyAre) {
  const ModelConfig plain = small(), latent = small([](MoeConfig&m) { m.latent = 64; });
  const int64_t per_layer = 3 * 8 * 352 * 64 + 2 * 256 * 64 - 3 * 8 * 352 * 256;
  EXPECT_EQ(count_parameters(Decoder(latent)).total - count_parameters(Decoder(plain)).total, 6 * per_layer);
}

}  // namespace ingot::test::moe_config_test
