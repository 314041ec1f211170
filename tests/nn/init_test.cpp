// models/init, nn/parameter: distributions of initial values, rules by name, muP.
#include "nn/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "models/decoder.h"
#include "optim/optimizer.h"
#include "support/small_models.h"
#include "support/support.h"
#include "train/step.h"

namespace ingot::init_test {

using test::message_of;

std::vector<float> values_of(const ParameterSpec& spec, const Placement& placement = {}) {
  const Shape shape = local_shape(spec, placement);
  std::vector<float> x(static_cast<size_t>(shape.numel()));
  initialize(spec, placement, 7, Tensor::of(x.data(), shape));
  return x;
}

struct Moments {
  double mean = 0, std = 0, largest = 0, fourth = 0;  // fourth: E x^4 / std^4
};
Moments moments_of(const std::vector<float>& x) {
  Moments m;
  const double n = static_cast<double>(x.size());
  for (const double v : x) m.mean += v / n, m.largest = std::max(m.largest, std::abs(v));
  for (const double v : x) m.std += v * v / n, m.fourth += v * v * v * v / n;
  m.fourth /= m.std * m.std;
  m.std = std::sqrt(m.std);
  return m;
}

TEST(Init, Distributions) {
  ParameterSpec spec{"w", {300, 200}, ParamRole::matrix, Init::normal(0.02)};
  const Moments normal = moments_of(values_of(spec));
  EXPECT_NEAR(normal.std, 0.02, 2e-4);
  EXPECT_NEAR(normal.fourth, 3.0, 0.1);
  EXPECT_GT(normal.largest, 0.07);
  spec.init = Init::truncated(0.02);
  const std::vector<float> cut = values_of(spec);
  const Moments truncated = moments_of(cut);
  EXPECT_LE(truncated.largest, 0.06001);
  EXPECT_NEAR(truncated.std, 0.02 * 0.98658, 2e-4);  // standard deviation of a normal truncated at 3
  EXPECT_NEAR(truncated.mean, 0, 4e-4);
  // Both distributions draw the same numbers below the bound and others beyond it.
  spec.init = Init::normal(0.02);
  const std::vector<float> whole = values_of(spec);
  int64_t changed = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    changed += whole[i] != cut[i];
    ASSERT_EQ(whole[i] != cut[i], std::abs(whole[i]) > 0.06f) << i;
  }
  EXPECT_NEAR(static_cast<double>(changed) / 60000, 0.0027, 0.001);
  spec.init = Init::uniform(0.5);
  const Moments uniform = moments_of(values_of(spec));
  EXPECT_LE(uniform.largest, 0.5);
  EXPECT_GT(uniform.largest, 0.499);
  EXPECT_NEAR(uniform.std, 0.5 / std::sqrt(3.0), 2e-3);
  EXPECT_NEAR(uniform.fourth, 1.8, 0.02);
}

TEST(Init, TheSameOnEveryLayout) {
  for (const Init& init : {Init::normal(1), Init::truncated(1), Init::uniform(1)}) {
    const ParameterSpec spec{"w", {6, 50}, ParamRole::matrix, init, 1, {}, {ShardAxis::tensor, 0, {}}};
    const std::vector<float> whole = values_of(spec);
    const std::vector<float> half = values_of(spec, {.tensor_size = 2, .tensor_rank = 1});
    EXPECT_TRUE(std::equal(half.begin(), half.end(), whole.begin() + 150));
  }
}

const ParameterSpec& find(const ParameterTable& t, const std::string& name) {
  return t[t.find(name)];
}

// modded-nanogpt: uniform with 0.5 / sqrt(in), outputs and head zero; embedding by a rule of its own.
TEST(Init, RulesByNameLaterOverEarlier) {
  ModelConfig m = test::small_model_config("moe");
  m.tied = false;
  m.layers = 3;
  m.init = {{"*", InitChoice::uniform, {}, {}, false},
            {"embed.weight", InitChoice::truncated, 0.006, {}, false},
            {"*.attention.out.weight", InitChoice::normal, 0.02, {}, true},
            {"*.experts.down.weight", InitChoice::fan_in, {}, 2.0, true},
            {"lm_head.weight", InitChoice::zero, {}, {}, false}};
  const Decoder d(m);
  const auto expect = [&](const std::string& name, Init::Kind kind, double value) {
    EXPECT_EQ(find(d.table(), name).init.kind, kind) << name;
    EXPECT_DOUBLE_EQ(find(d.table(), name).init.value, value) << name;
  };
  expect("layers.1.attention.qkv.weight", Init::Kind::uniform,
         std::sqrt(3.0) * 0.5 / std::sqrt(static_cast<double>(m.width)));
  expect("embed.weight", Init::Kind::truncated, 0.006);
  expect("layers.0.attention.out.weight", Init::Kind::normal, 0.02 / std::sqrt(6.0));
  expect("layers.2.moe.experts.down.weight", Init::Kind::normal,
         2 / std::sqrt(static_cast<double>(m.moe.hidden)) / std::sqrt(6.0));
  expect("lm_head.weight", Init::Kind::normal, 0);
  expect("final_norm.weight", Init::Kind::constant, 1);
  const Moments head = moments_of(values_of(find(d.table(), "lm_head.weight")));
  EXPECT_EQ(head.largest, 0);
}

TEST(Init, ErrorsTeach) {
  ModelConfig m = test::small_model_config("llama");
  m.init = {{"*.qvk.weight", InitChoice::zero, {}, {}, false}};
  const std::string unmatched = message_of([&] { Decoder d(m); });
  EXPECT_NE(unmatched.find("'*.qvk.weight' in model.init matches no matrix"), std::string::npos) << unmatched;
  EXPECT_NE(unmatched.find("attention.qkv.weight'"), std::string::npos) << unmatched;
  m.init = {{"*", InitChoice::uniform, 0.1, {}, false}};
  EXPECT_NE(message_of([&] { Decoder d(m); }).find("uniform has no std; use gain"), std::string::npos);
  m.init.clear();
  m.mup_base_width = 8;
  m.tied = true;
  EXPECT_NE(message_of([&] { Decoder d(m); }).find("set tied = false"), std::string::npos);
}

ModelConfig mup_model(int64_t width, int64_t base) {
  ModelConfig m = test::small_model_config("llama");
  m.tied = false;
  m.qk_norm = false;
  m.vocab = 64;
  m.width = width;
  m.head_width = 16;
  m.heads = m.kv_heads = width / 16;
  m.hidden = 2 * width;
  m.layers = 2;
  m.init_std = 0.1;
  m.scale_output_init = false;
  m.mup_base_width = base;
  return m;
}

TEST(Mup, TableThreeOfThePaper) {
  const Decoder wide(mup_model(128, 32)), base(mup_model(32, 32));
  for (int i = 0; i < base.table().size(); ++i) {
    EXPECT_EQ(base.table()[i].width_multiple, 1.0);
    if (base.table()[i].init.kind == Init::Kind::normal) {
      EXPECT_EQ(base.table()[i].init.value, 0.1);
    }
  }
  EXPECT_EQ(find(wide.table(), "embed.weight").init.value, 0.1);
  EXPECT_EQ(find(wide.table(), "embed.weight").width_multiple, 1.0);
  EXPECT_EQ(find(wide.table(), "final_norm.weight").width_multiple, 1.0);
  for (const char* name : {"layers.0.attention.qkv.weight", "layers.1.mlp.down.weight"}) {
    EXPECT_EQ(find(wide.table(), name).init.value, 0.05) << name;
    EXPECT_EQ(find(wide.table(), name).width_multiple, 4.0) << name;
  }
  EXPECT_EQ(find(wide.table(), "lm_head.weight").init.value, 0.025);
  EXPECT_EQ(find(wide.table(), "lm_head.weight").width_multiple, 4.0);
}

/// RMS change of the log-probabilities of a batch by `steps` steps at a rate.
double change_of_logprob(const ModelConfig& config, const std::string& matrices) {
  Model model(config, Precision::f32());
  model.weights().initialize(1);
  WeightSet& w = model.weights();
  GradientBuffer gradients(w.table(), {}, DType::f32);
  std::vector<ParamView> params;
  for (int i = 0; i < w.size(); ++i) {
    params.push_back({w.table()[i].name, w.master(i).shape(), w.table()[i].matrices, w.table()[i].row_splits,
                      w.master(i).as<float>(), gradients.gradient(i).as<float>()});
    params.back().width_multiple = w.table()[i].width_multiple;
  }
  OptimizerConfig oc;
  oc.groups.matrices = matrices;
  oc.weight_decay = 0;
  Optimizer optimizer(oc, params);
  StepRunner runner(model, gradients);
  const data::Batch batch = test::packed_batch(4, 16, {16, 16, 16, 16}, config.vocab);
  const double before = runner.evaluate(batch).first;
  for (int step = 0; step < 2; ++step) {
    runner.run(batch, {.micro_batch = 4});
    gradients.finish_step();
    optimizer.step({.lr = 2e-3, .grad_scale = 1.0 / static_cast<double>(batch.valid_targets)});
  }
  return (before - runner.evaluate(batch).first) / static_cast<double>(batch.valid_targets);
}

// With muP one learning rate changes the output by about the same at every width. Without it, sixteen times
// the width changes it several times as much.
TEST(Mup, OneRateMovesEveryWidthAlike) {
  for (const char* kind : {"adamw", "muon"}) {
    const double narrow = change_of_logprob(mup_model(32, 32), kind);
    const double wide = change_of_logprob(mup_model(512, 32), kind);
    const double standard = change_of_logprob(mup_model(512, 0), kind);
    RecordProperty(kind, fmt::format("muP {:.4f} -> {:.4f}, standard {:.4f}", narrow, wide, standard));
    EXPECT_GT(wide / narrow, 0.5);
    EXPECT_LT(wide / narrow, 2.0);
    EXPECT_GT(standard / narrow, 3.0);
  }
}

}  // namespace ingot::init_test
