// Upcycling: the mixture's logits are the dense model's at step 0, for shards, expansions, nonlinearities and
// expert ranks; every token's experts are complete groups; what cannot be exact is refused.
#include "models/upcycle.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "models/decoder.h"
#include "models/presets.h"
#include "ops/reference.h"
#include "support/support.h"

namespace ingot::test::upcycle_test {

ModelConfig dense_config(ActivationKind kind) {
  ModelConfig m = model_preset("llama-small");
  m.vocab = 37;
  m.width = 20;
  m.layers = 2;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_width = 6;
  m.hidden = 24;
  m.context = 32;
  m.init_std = 0.2;
  m.mlp = kind;
  return m;
}

struct Forward {
  reference::Array logits;
  std::vector<std::vector<int32_t>> ids;  ///< routes of each MoE layer
};

Forward forward(const Decoder& decoder, const WeightSet& weights) {
  constexpr int64_t kTokens = 17;
  const Random random(2, RandomPurpose::test);
  std::vector<int32_t> tokens, positions;
  for (int32_t t = 0; t < kTokens; ++t) {
    tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(t), 37)));
    positions.push_back(t);
  }
  const BatchLayout rows{kTokens, {{0, kTokens, 0, nullptr}}};
  HeapArena arena;
  Tape tape(arena, {.record = false});
  Context c{tape, weights, &rows, tape.leaf(Tensor::of(positions.data(), {kTokens}))};
  const DecoderOutput out = decoder.forward(c, tape.leaf(Tensor::of(tokens.data(), {kTokens})));
  Forward f{reference::load(decoder.logits(c, out.hidden_TD).tensor()), {}};
  for (const Metric& m : tape.metrics())
    if (m.name == "router_ids") f.ids.push_back(reference::load_ints(m.value.tensor()));
  return f;
}

double difference(const reference::Array& a, const reference::Array& b) {
  double worst = 0, scale = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst / scale;
}

void expect_groups(const Forward& f, int64_t top_k, int64_t granularity) {
  ASSERT_EQ(f.ids.size(), 2u);
  for (const auto& layer : f.ids)
    for (size_t s = 0; s < layer.size(); ++s) {
      const auto place = static_cast<int64_t>(s) % top_k % granularity;
      EXPECT_EQ(layer[s] % granularity, place);
      if (place > 0) {
        EXPECT_EQ(layer[s], layer[s - 1] + 1);
      }
    }
}

TEST(Upcycle, ComputesTheDenseModel) {
  for (const ActivationKind kind :
       {ActivationKind::swiglu, ActivationKind::geglu, ActivationKind::relu2, ActivationKind::gelu})
    for (const UpcycleOptions& o : {UpcycleOptions{1, 4, 2}, UpcycleOptions{2, 3, 2}, UpcycleOptions{4, 2, 4},
                                    UpcycleOptions{3, 4, 6}, UpcycleOptions{2, 2, 4}}) {
      const Decoder dense(dense_config(kind)), moe(upcycled_config(dense.config(), o));
      for (const auto& [precision, tolerance] :
           {std::pair{Precision::f64(), 1e-13}, {Precision::f32(), 2e-6}}) {
        WeightSet from(dense.table(), {}, precision), to(moe.table(), {}, precision);
        from.initialize(11);
        from.refresh_compute();
        upcycle(from, o, 12, to);
        const Forward expected = forward(dense, from), found = forward(moe, to);
        EXPECT_LE(difference(found.logits, expected.logits), tolerance)
            << "G " << o.granularity << " X " << o.expansion << " k " << o.top_k;
        expect_groups(found, o.top_k, o.granularity);
      }
    }
}

TEST(Upcycle, AnExpertRankGetsItsShare) {
  const UpcycleOptions o{2, 4, 2};
  const Decoder dense(dense_config(ActivationKind::swiglu)), moe(upcycled_config(dense.config(), o));
  WeightSet from(dense.table(), {}, Precision::f32()), whole(moe.table(), {}, Precision::f32());
  from.initialize(1);
  upcycle(from, o, 2, whole);
  for (int rank = 0; rank < 2; ++rank) {
    Placement place;
    place.expert_rank = rank, place.expert_size = 2;
    WeightSet part(moe.table(), place, Precision::f32());
    upcycle(from, o, 2, part);
    for (int i = 0; i < part.size(); ++i) {
      const bool expert = moe.table()[i].role == ParamRole::expert;
      const Tensor all = whole.master(i), mine = part.master(i);
      const Tensor expected = expert ? all.slice(rank * mine.dim(0), (rank + 1) * mine.dim(0)) : all;
      EXPECT_EQ(reference::load(mine), reference::load(expected)) << moe.table()[i].name;
    }
  }
}

TEST(Upcycle, RefusesWhatIsNotExact) {
  const auto message = [](const ModelConfig& m, const UpcycleOptions& o) {
    try {
      upcycled_config(m, o);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  ModelConfig biased = dense_config(ActivationKind::gelu), moe = model_preset("moe-small");
  biased.mlp_bias = true;
  const ModelConfig good = dense_config(ActivationKind::swiglu);
  EXPECT_EQ(message(good, {2, 2, 2}), "");
  EXPECT_NE(message(biased, {1, 2, 2}).find("biases"), std::string::npos);
  EXPECT_NE(message(moe, {1, 2, 2}).find("8 experts already"), std::string::npos);
  EXPECT_NE(message(good, {5, 2, 5}).find("24 cannot be cut into 5"), std::string::npos);
  EXPECT_NE(message(good, {2, 2, 3}).find("multiple of granularity = 2"), std::string::npos);
  EXPECT_NE(message(good, {1, 4, 1}).find("at least 2"), std::string::npos);
  EXPECT_NE(message(good, {2, 2, 6}).find("the 4 experts"), std::string::npos);
}

}  // namespace ingot::test::upcycle_test
