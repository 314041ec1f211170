// optim/: options of the optimizers: moments in bf16, rules with state of their own shape, momentum
// schedules, QK-clip on a real model.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "device/simd/isa.h"
#include "optim/optimizer.h"
#include "optim/qk_clip.h"
#include "support/small_models.h"
#include "support/support.h"
#include "train/step.h"

namespace ingot::options_test {

using Floats = std::vector<float>;

using test::message_of;

Floats normals(size_t count, uint64_t stream, double scale = 1.0) {
  const Random random(17, RandomPurpose::test, stream);
  Floats x(count);
  for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>(scale * random.normal(i));
  return x;
}

/// Two tensors, one longer than a chunk and of odd size, with an optimizer over them.
struct Trained {
  Floats a = normals(3 * 17, 1), b = normals(20011, 2), grad_a = Floats(a.size()), grad_b = Floats(b.size());
  std::unique_ptr<Optimizer> optimizer;
  explicit Trained(const OptimizerConfig& config) {
    optimizer =
        std::make_unique<Optimizer>(config,
                                    std::vector<ParamView>{{"a", {3, 17}, 1, {}, a.data(), grad_a.data()},
                                                           {"b", {20011}, 1, {}, b.data(), grad_b.data()}},
                                    OptimizerRun{.seed = 5});
  }
  void step(int64_t t) {
    const Floats ga = normals(a.size(), 100 + static_cast<uint64_t>(t)),
                 gb = normals(b.size(), 200 + static_cast<uint64_t>(t));
    std::copy(ga.begin(), ga.end(), grad_a.begin());
    std::copy(gb.begin(), gb.end(), grad_b.begin());
    optimizer->step({.lr = 1e-2});
  }
  std::string bytes() {
    std::string all;
    optimizer->for_each_state([&](const std::string&, const Tensor& t) {
      all.append(static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
    });
    all.append(reinterpret_cast<const char*>(a.data()), a.size() * sizeof(float));
    return all.append(reinterpret_cast<const char*>(b.data()), b.size() * sizeof(float));
  }
  Tensor state(const std::string& name) {
    Tensor found;
    optimizer->for_each_state([&](const std::string& n, const Tensor& t) {
      if (n == name) found = t;
    });
    return found;
  }
};

OptimizerConfig config_of(const std::string& others, ValueStorage first, ValueStorage second) {
  OptimizerConfig c;
  c.groups.others = others;
  c.first_moment = first;
  c.second_moment = second;
  return c;
}

// From bf16 state, one step must store the fp32 result rounded: to nearest, or by the bits of the tensor's
// stream.
TEST(Moments, Bf16StoresTheRoundedFp32Result) {
  for (const ValueStorage storage : {ValueStorage::bf16, ValueStorage::bf16_stochastic}) {
    OptimizerConfig c = config_of("ademamix", storage, storage);
    c.adamw.beta1 = 0.75;
    c.ademamix = {0.95, 3, 1};
    Trained half(c);
    for (int64_t t = 0; t < 3; ++t) half.step(t);
    c.first_moment = c.second_moment = ValueStorage::f32;
    Trained full(c);
    half.optimizer->for_each_state([&](const std::string& name, const Tensor& from) {
      const Tensor to = full.state(name);
      if (from.dtype() == DType::i64) *to.as<int64_t>() = *from.as<int64_t>();
      for (int64_t i = 0; i < from.numel() && from.dtype() == DType::bf16; ++i)
        to.as<float>()[i] = to_float(from.as<bf16>()[i]);
    });
    std::copy(half.a.begin(), half.a.end(), full.a.begin());
    std::copy(half.b.begin(), half.b.end(), full.b.begin());
    half.step(3);
    full.step(3);
    EXPECT_EQ(half.b, full.b);  // the update itself is fp32
    for (const char* name : {"a.momentum", "b.exp_avg", "b.exp_avg_sq", "b.exp_avg_slow"}) {
      const Tensor stored = half.state(name), exact = full.state(name);
      const Random random(5, RandomPurpose::rounding, hash64(std::string(name) + " 3"));
      int64_t wrong = 0;
      for (int64_t i = 0; i < stored.numel(); ++i) {
        const float x = exact.as<float>()[i];
        const uint32_t half_word =
            random.bits(static_cast<uint64_t>(i / 2)) >> (i % 2 == 0 ? 0 : 16) & 0xFFFFu;
        const auto cut = static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + half_word) >> 16);
        const uint16_t expected = storage == ValueStorage::bf16 ? to_bf16(x).bits : cut;
        wrong += stored.as<bf16>()[i].bits != expected;
      }
      EXPECT_EQ(wrong, 0) << name << " " << name_of(storage);
    }
  }
}

TEST(Moments, SameBitsForAnyThreadsAndInstructionSetAndResume) {
  const OptimizerConfig c =
      config_of("ademamix", ValueStorage::bf16_stochastic, ValueStorage::bf16_stochastic);
  const int threads = num_threads();
  const Isa isa = active_isa();
  const auto trained = [&] {
    Trained t(c);
    for (int64_t s = 0; s < 4; ++s) t.step(s);
    return t.bytes();
  };
  const std::string expected = trained();
  set_num_threads(threads == 1 ? 2 : 1);
  EXPECT_TRUE(trained() == expected);
  set_num_threads(threads);
  for (const Isa other : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (!isa_available(other)) continue;
    force_isa(other);
    EXPECT_TRUE(trained() == expected) << isa_name(other);
  }
  force_isa(isa);
  Trained first(c), second(c);
  for (int64_t s = 0; s < 2; ++s) first.step(s);
  first.optimizer->for_each_state([&](const std::string& name, const Tensor& t) {
    std::memcpy(second.state(name).data, t.data, static_cast<size_t>(t.bytes()));
  });
  std::copy(first.a.begin(), first.a.end(), second.a.begin());
  std::copy(first.b.begin(), first.b.end(), second.b.begin());
  for (int64_t s = 2; s < 4; ++s) second.step(s);
  EXPECT_TRUE(second.bytes() == expected);
}

// A moment that decays by 0.1 % a step: rounding to nearest would hold it for ever, stochastic rounding
// decays it.
TEST(Moments, StochasticRoundingIsRightOnAverage) {
  OptimizerConfig c = config_of("adamw", ValueStorage::f32, ValueStorage::bf16_stochastic);
  c.adamw.beta2 = 0.999;
  Trained t(c);
  const Tensor v = t.state("b.exp_avg_sq");
  for (int64_t i = 0; i < v.numel(); ++i) v.as<bf16>()[i] = to_bf16(1.01f);
  const double start = to_float(to_bf16(1.01f));
  for (int64_t s = 0; s < 100; ++s) t.optimizer->step({.lr = 0, .grad_scale = 0});
  double mean = 0, square = 0;
  for (int64_t i = 0; i < v.numel(); ++i) {
    const double x = to_float(v.as<bf16>()[i]);
    mean += x / static_cast<double>(v.numel());
    square += x * x / static_cast<double>(v.numel());
  }
  const double error = std::sqrt((square - mean * mean) / static_cast<double>(v.numel()));
  EXPECT_NEAR(mean, start * std::pow(0.999, 100), 4 * error);
  c.second_moment = ValueStorage::bf16;
  const std::string text = message_of([&] { Trained stalls(c); });
  EXPECT_NE(text.find("beta2 = 0.999"), std::string::npos) << text;
  EXPECT_NE(text.find("bf16_stochastic"), std::string::npos) << text;
}

TEST(Moments, HalfTheBytes) {
  Trained full(config_of("adamw", ValueStorage::f32, ValueStorage::f32));
  Trained half(config_of("adamw", ValueStorage::bf16, ValueStorage::bf16));
  const double ratio =
      static_cast<double>(half.optimizer->state_bytes()) / static_cast<double>(full.optimizer->state_bytes());
  EXPECT_NEAR(ratio, 0.5, 0.002);
}

TEST(AdEMAMix, SchedulesAtTheirEnds) {
  const AdEMAMixConfig c{0.9999, 8, 1000};
  EXPECT_NEAR(ademamix_alpha(c, 250), 2.0, 1e-15);
  EXPECT_EQ(ademamix_alpha(c, 5000), 8.0);
  EXPECT_EQ(ademamix_beta3(c, 0.9, 1000), 0.9999);
  const auto half_life = [](double beta) { return std::log(0.5) / std::log(beta); };
  EXPECT_NEAR(half_life(ademamix_beta3(c, 0.9, 500)), 0.5 * (half_life(0.9) + half_life(0.9999)), 1e-6);
  EXPECT_NEAR(ademamix_beta3(c, 0.9, 1), 0.9, 0.05);
  EXPECT_THROW(validate(AdEMAMixConfig{1.0, 5, 1}), Error);
  EXPECT_THROW(validate(AdEMAMixConfig{0.9, -1, 1}), Error);
}

TEST(Muon, MomentumWarmsUpAndCoolsDown) {
  // modded-nanogpt: 0.85 to 0.95 over 300 steps, back over the last 50.
  MuonConfig c;
  c.momentum_warmup = 300;
  c.momentum_cooldown = 50;
  validate(c);
  require_fit(c, 1000);
  EXPECT_DOUBLE_EQ(muon_momentum(c, 1000, 0), 0.85);
  EXPECT_DOUBLE_EQ(muon_momentum(c, 1000, 150), 0.90);
  EXPECT_DOUBLE_EQ(muon_momentum(c, 1000, 300), 0.95);
  EXPECT_DOUBLE_EQ(muon_momentum(c, 1000, 950), 0.95);
  EXPECT_DOUBLE_EQ(muon_momentum(c, 1000, 975), 0.90);
  EXPECT_DOUBLE_EQ(muon_momentum(c, 1000, 999), 0.852);
  EXPECT_NE(message_of([&] { require_fit(c, 340); }).find("300 + 50 > 340"), std::string::npos);
}

/// Adafactor's idea, small: the second moment of a matrix as row and column means.
class FactoredRule final : public UpdateRule {
 public:
  std::vector<StateSlot> slots(const ParamView& p) const override {
    return {{"row", {p.matrix_rows()}}, {"column", {p.matrix_cols()}}};
  }
  std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t, double) override {
    for (const RuleTensor& t : tensors) {
      const int64_t rows = t.param->matrix_rows(), cols = t.param->matrix_cols();
      auto* row = static_cast<float*>(t.state[0].data);
      auto* column = static_cast<float*>(t.state[1].data);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) {
          row[i] += 1;
          column[j] += 2;
          static_cast<float*>(t.param->master.data)[i * cols + j] -= static_cast<float>(t.lr);
        }
    }
    return std::vector<UpdateStat>(tensors.size());
  }
};

/// Its name in the registry, where it lies from the first call on.
const char* factored() {
  static const bool once = [] {
    register_optimizer("factored", RuleTakes::whole_matrices,
                       [](const OptimizerConfig&, int64_t) { return std::make_unique<FactoredRule>(); });
    return true;
  }();
  return once ? "factored" : "";
}

TEST(UpdateRule, StateMayHaveItsOwnShape) {
  Floats w(12, 1.0f), g(12), b(3, 1.0f);
  OptimizerConfig config;
  config.groups.matrices = factored();
  Optimizer optimizer(config,
                      {{"w", {3, 4}, 1, {}, w.data(), g.data()}, {"b", {3}, 1, {}, b.data(), g.data()}});
  optimizer.step({.lr = 0.5});
  EXPECT_EQ(w, Floats(12, 0.5f));
  std::map<std::string, Tensor> state;
  optimizer.for_each_state([&](const std::string& name, const Tensor& t) { state[name] = t; });
  EXPECT_EQ(state.at("w.row").shape(), (Shape{3}));
  EXPECT_EQ(state.at("w.column").shape(), (Shape{4}));
  EXPECT_EQ(state.at("w.row").as<float>()[2], 4.0f);
  EXPECT_EQ(state.at("w.column").as<float>()[3], 6.0f);
  EXPECT_EQ(state.size(), 5u);
}

TEST(QkClip, FactorsMultiplyToEachHeadsOwn) {
  const std::vector<double> top = {5, 20, 40, 10};
  const QkFactors f = qk_clip_factors({10, 0.5}, 2, top);
  EXPECT_EQ(f.clipped, 2);
  for (size_t h = 0; h < 4; ++h) EXPECT_NEAR(f.query[h] * f.key[h / 2], std::min(1.0, 10 / top[h]), 1e-15);
  EXPECT_NEAR(f.key[1], 0.5, 1e-15);
  EXPECT_THROW(validate(QkClipConfig{-1, 0.5}), Error);
  EXPECT_THROW(validate(QkClipConfig{1, 1.5}), Error);
}

// The same batch before and after the clip: heads above the threshold are scaled to it, the others stay
// unchanged.
TEST(QkClip, LogitsOfTheSameInputLandOnTheThreshold) {
  for (const char* family : {"gpt2", "llama", "mla", "zaya"}) {
    ModelConfig config = test::small_model_config(family);
    config.qk_norm = false;
    for (const bool bf16 : {false, true}) {
      Model model(config, bf16 ? Precision::bf16() : Precision::f32());
      model.weights().initialize(3);
      GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
      std::vector<ParamView> params = optimizer_views(model.weights(), gradients);
      const Random random(4, RandomPurpose::test);
      for (const ParamView& p : params)  // large logits, other in each head
        if (p.name.find("qkv") != std::string::npos || p.name.find("_up.weight") != std::string::npos ||
            p.name.find("temperature") != std::string::npos)
          for (int64_t i = 0; i < p.numel(); ++i)
            static_cast<float*>(p.master.data)[i] +=
                static_cast<float>(0.3 * random.normal(static_cast<uint64_t>(i)));
      model.weights().refresh_compute();
      const std::vector<QkClipLayer> layers = qk_clip_layers(config, params);
      const data::Batch batch = test::packed_batch(2, 16, {16, 16}, 9);
      StepRunner runner(model, gradients);
      const auto before = runner.run(batch, {.micro_batch = 1}).attention_logits;
      ASSERT_EQ(before.size(), static_cast<size_t>(config.layers));
      const std::vector<double>& first = before.at(0);  // its input does not depend on other layers
      const double threshold = 0.5 * (*std::max_element(first.begin(), first.end()) +
                                      *std::min_element(first.begin(), first.end()));
      ASSERT_GT(threshold, 0);
      EXPECT_GT(qk_clip({threshold, 0.5}, layers[0], first), 0);
      const std::vector<double> after = runner.run(batch, {.micro_batch = 1}).attention_logits.at(0);
      const double slack = bf16 ? 0.03 : 1e-4;
      for (size_t h = 0; h < first.size(); ++h) {
        if (config.attention == AttentionKind::cca)
          EXPECT_LE(after[h], threshold * (1 + slack)) << family << h;
        else
          EXPECT_NEAR(after[h], std::min(first[h], threshold), slack * threshold) << family << h;
      }
      for (int i = 0; i < model.weights().size(); ++i)
        for (int64_t j = 0; model.weights().has_copy(i) && j < model.weights().master(i).numel(); ++j)
          ASSERT_EQ(model.weights().compute(i).as<ingot::bf16>()[j].bits,
                    to_bf16(model.weights().master(i).as<float>()[j]).bits);
    }
  }
}

TEST(QkClip, RefusesModelsWhoseLogitsItCannotScale) {
  ModelConfig m;
  m.qk_norm = true;
  EXPECT_NE(message_of([&] { qk_clip_layers(m, {}); }).find("qk_norm"), std::string::npos);
  m.qk_norm = false;
  m.logit_softcap = 30;
  EXPECT_NE(message_of([&] { qk_clip_layers(m, {}); }).find("logit_softcap = 30"), std::string::npos);
}

}  // namespace ingot::options_test
