// optim/: schedules at their corners, groups by pattern, balancing biases against a plain double loop.
#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/glob.h"
#include "base/philox.h"
#include "optim/balance.h"
#include "optim/groups.h"
#include "support/support.h"

namespace ingot::schedule_test {

using test::message_of;

TEST(Schedule, WarmupNeverZeroAndReachesPeak) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::wsd, ScheduleKind::linear}) {
    ScheduleConfig c{.kind = kind, .total_steps = 100, .warmup_steps = 9, .min_ratio = 0.1};
    validate(c);
    EXPECT_DOUBLE_EQ(schedule_multiplier(c, 0), 0.1);
    EXPECT_DOUBLE_EQ(schedule_multiplier(c, 8), 0.9);
    EXPECT_DOUBLE_EQ(schedule_multiplier(c, 9), 1.0) << name_of(kind);
  }
}

// nanoGPT: min + 0.5 (1 + cos(pi x)) (max - min), x = (it - warmup) / (decay_iters - warmup).
TEST(Schedule, CosineFollowsNanoGpt) {
  const ScheduleConfig c{
      .kind = ScheduleKind::cosine, .total_steps = 2000, .warmup_steps = 100, .min_ratio = 0.1};
  for (const int64_t it : {100, 101, 577, 1050, 1999}) {
    const double x = static_cast<double>(it - 100) / 1900.0;
    EXPECT_NEAR(schedule_multiplier(c, it), 0.1 + 0.5 * (1 + std::cos(M_PI * x)) * 0.9, 1e-15);
  }
  EXPECT_DOUBLE_EQ(schedule_multiplier(c, 2000), 0.1);
  EXPECT_DOUBLE_EQ(schedule_multiplier(c, 99999), 0.1);
}

TEST(Schedule, WsdShapes) {
  ScheduleConfig c{.kind = ScheduleKind::wsd, .total_steps = 1000, .warmup_steps = 10, .decay_fraction = 0.2};
  EXPECT_EQ(schedule_multiplier(c, 799), 1.0);
  EXPECT_EQ(schedule_multiplier(c, 800), 1.0);
  EXPECT_DOUBLE_EQ(schedule_multiplier(c, 850), 0.75);
  EXPECT_NEAR(schedule_multiplier(c, 999), 1.0 / 200, 1e-15);
  EXPECT_EQ(schedule_multiplier(c, 1000), 0.0);
  c.decay_shape = DecayShape::sqrt;
  EXPECT_DOUBLE_EQ(schedule_multiplier(c, 850), 0.5);
  c.decay_shape = DecayShape::cosine;
  EXPECT_NEAR(schedule_multiplier(c, 900), 0.5, 1e-15);
  c.decay_steps = 100;
  EXPECT_EQ(schedule_multiplier(c, 900), 1.0);
  c.decay_steps = 0;
  c.decay_fraction = 0;
  EXPECT_EQ(schedule_multiplier(c, 2000), 1.0);
}

TEST(Schedule, LinearAnneal) {
  const ScheduleConfig c{.kind = ScheduleKind::linear, .total_steps = 40, .min_ratio = 0.5};
  EXPECT_EQ(schedule_multiplier(c, 0), 1.0);
  EXPECT_DOUBLE_EQ(schedule_multiplier(c, 20), 0.75);
  EXPECT_EQ(schedule_multiplier(c, 40), 0.5);
}

// DeepSeek LLM's 80/10/10 drops, and DeepSeek V3's constant, cosine, constant, drop.
TEST(Schedule, PiecewiseMultiStepAndComposite) {
  ScheduleConfig c{.kind = ScheduleKind::piecewise, .total_steps = 1000, .warmup_steps = 20};
  c.segments = {{0.8, 1.0}, {0.9, 0.316}, {1.0, 0.1}};
  validate(c);
  EXPECT_EQ(schedule_multiplier(c, 799), 1.0);
  EXPECT_EQ(schedule_multiplier(c, 800), 0.316);
  EXPECT_EQ(schedule_multiplier(c, 900), 0.1);
  EXPECT_EQ(schedule_multiplier(c, 5000), 0.1);
  c.segments = {{0.67, 1.0}, {0.97, 0.1, DecayShape::cosine}, {0.99, 0.1}, {1.0, 0.033}};
  validate(c);
  EXPECT_EQ(schedule_multiplier(c, 670), 1.0);
  EXPECT_NEAR(schedule_multiplier(c, 820), 0.55, 1e-12);
  EXPECT_EQ(schedule_multiplier(c, 970), 0.1);
  EXPECT_EQ(schedule_multiplier(c, 999), 0.033);
}

TEST(Schedule, ContradictionsShowTheArithmetic) {
  ScheduleConfig c{.kind = ScheduleKind::wsd, .total_steps = 100, .warmup_steps = 50, .decay_fraction = 0.6};
  EXPECT_NE(message_of([&] { validate(c); }).find("50 + 60 > 100"), std::string::npos);
  c = {.kind = ScheduleKind::cosine, .total_steps = 10, .warmup_steps = 11};
  EXPECT_NE(message_of([&] { validate(c); }).find("11"), std::string::npos);
  c = {.kind = ScheduleKind::piecewise, .total_steps = 10, .segments = {{0.5, 1.0}, {0.4, 1.0}}};
  EXPECT_NE(message_of([&] { validate(c); }).find("0.4 after 0.5"), std::string::npos);
  EXPECT_THROW(validate(ScheduleConfig{.kind = ScheduleKind::linear}), Error);
  EXPECT_NE(message_of([] { enum_from<ScheduleKind>("cosin", "schedule"); }).find("constant, cosine, wsd"),
            std::string::npos);
  EXPECT_EQ(enum_from<ScheduleKind>("wsd", "schedule"), ScheduleKind::wsd);
  EXPECT_EQ(enum_from<DecayShape>("sqrt", "decay shape"), DecayShape::sqrt);
}

TEST(Schedule, MarkedSteps) {
  const ScheduleConfig c{
      .kind = ScheduleKind::wsd, .total_steps = 1000, .warmup_steps = 10, .decay_fraction = 0.2};
  std::vector<int64_t> steps;
  for (const MarkedStep& m : marked_steps(c)) steps.push_back(m.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 10, 800, 999}));
  EXPECT_EQ(
      describe_schedule(c, 3e-4),
      "2.727e-05 at step 0 (warm-up starts), 0.0003 at step 10 (peak), 0.0003 at step 800 (decay starts), "
      "1.5e-06 at step 999 (last step)");
}

TEST(Schedule, MomentumWarmup) {
  EXPECT_DOUBLE_EQ(warmed_momentum(0, 0.85, 0.95, 300), 0.85);
  EXPECT_DOUBLE_EQ(warmed_momentum(150, 0.85, 0.95, 300), 0.90);
  EXPECT_DOUBLE_EQ(warmed_momentum(300, 0.85, 0.95, 300), 0.95);
  EXPECT_DOUBLE_EQ(warmed_momentum(0, 0.85, 0.95, 0), 0.95);
}

ParamView param(std::string name, Shape shape, int64_t matrices = 1) {
  ParamView p;
  p.name = std::move(name);
  p.shape = shape;
  p.matrices = matrices;
  return p;
}

// Every kind of tensor of the published ZAYA1 checkpoint, scaled down.
std::vector<ParamView> zaya_params() {
  const std::string l = "model.layers.0.";
  std::vector<ParamView> params = {
      param("model.embed_tokens.weight", {64, 16}),
      param("model.input_hidden_states_scale", {16}),
      param("model.input_hidden_states_bias", {16}),
      param(l + "input_layernorm.weight", {16}),
      param(l + "self_attn.qkv_proj.q_proj.weight", {8, 16}),
      param(l + "self_attn.qkv_proj.conv_qk_depthwise.weight", {10, 1, 2}),
      param(l + "self_attn.qkv_proj.conv_qk_grouped.weight", {10, 4, 2}),
      param(l + "self_attn.qkv_proj.conv_qk_grouped.bias", {10}),
      param(l + "self_attn.qk_norm.temp", {2}),
      param(l + "mlp.gate.router_states_scale", {4}),
      param(l + "mlp.gate.router_mlp.out_proj.weight", {5, 4}),
      param(l + "mlp.experts.gate_up_proj", {4, 8, 16}, 4),
      param("model.norm.weight", {16}),
  };
  return params;
}

TEST(Groups, DefaultsOnZayaNames) {
  const std::vector<ParamView> params = zaya_params();
  const std::vector<ParamGroup> groups = resolve_groups(params, {});
  std::map<std::string, std::string> got;
  for (size_t i = 0; i < params.size(); ++i)
    got[params[i].name] = groups[i].optimizer + (groups[i].decay_multiplier > 0 ? " decay" : "");
  const std::string l = "model.layers.0.";
  EXPECT_EQ(got["model.embed_tokens.weight"], "adamw");
  EXPECT_EQ(got["model.input_hidden_states_scale"], "adamw");
  EXPECT_EQ(got[l + "input_layernorm.weight"], "adamw");
  EXPECT_EQ(got[l + "self_attn.qkv_proj.q_proj.weight"], "muon decay");
  EXPECT_EQ(got[l + "self_attn.qkv_proj.conv_qk_grouped.weight"], "adamw decay");
  EXPECT_EQ(got[l + "self_attn.qkv_proj.conv_qk_grouped.bias"], "adamw");
  EXPECT_EQ(got[l + "self_attn.qk_norm.temp"], "adamw");
  EXPECT_EQ(got[l + "mlp.gate.router_states_scale"], "adamw");
  EXPECT_EQ(got[l + "mlp.gate.router_mlp.out_proj.weight"], "muon decay");
  EXPECT_EQ(got[l + "mlp.experts.gate_up_proj"], "muon decay");
  const std::string table = describe_groups(params, groups);
  EXPECT_NE(table.find("muon: 660\n"), std::string::npos) << table;
}

TEST(Groups, RulesOverrideByFieldLaterWins) {
  const std::vector<ParamView> params = zaya_params();
  GroupConfig c;
  c.rules = {
      {.pattern = "*router*", .optimizer = "adamw", .lr_multiplier = 0.5, .decay_multiplier = {}},
      {.pattern = "*.out_proj.weight", .optimizer = {}, .lr_multiplier = 2.0, .decay_multiplier = 0.0}};
  const std::vector<ParamGroup> groups = resolve_groups(params, c);
  EXPECT_EQ(groups[9].lr_multiplier, 0.5);
  EXPECT_EQ(groups[10].optimizer, "adamw");
  EXPECT_EQ(groups[10].lr_multiplier, 2.0);
  EXPECT_EQ(groups[10].decay_multiplier, 0.0);
  c = {};
  c.matrices = "adamw";
  for (const ParamGroup& g : resolve_groups(params, c)) EXPECT_EQ(g.optimizer, "adamw");
}

TEST(Groups, UnmatchedPatternNamesTheNearest) {
  const std::vector<ParamView> params = zaya_params();
  GroupConfig c;
  c.rules = {{.pattern = "*.q_prj.weight", .optimizer = {}, .lr_multiplier = 2.0, .decay_multiplier = {}}};
  const std::string text = message_of([&] { resolve_groups(params, c); });
  EXPECT_NE(text.find("'*.q_prj.weight'"), std::string::npos) << text;
  EXPECT_NE(text.find("nearest names: 'model.layers.0.self_attn.qkv_proj.q_proj.weight'"), std::string::npos)
      << text;
  c = {};
  c.no_decay.push_back("*gamma*");
  EXPECT_THROW(resolve_groups(params, c), Error);
  c = {};
  c.rules = {{.pattern = "*temp", .optimizer = "muon", .lr_multiplier = {}, .decay_multiplier = {}}};
  EXPECT_NE(message_of([&] { resolve_groups(params, c); }).find("[2]"), std::string::npos);
}

TEST(Groups, Glob) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a*c?e", "abcde"));
  EXPECT_TRUE(glob_match("*norm*", "norm"));
  EXPECT_TRUE(glob_match("*ab*ab", "ab.ab.ab"));
  EXPECT_FALSE(glob_match("*norm", "norms"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_FALSE(glob_match("?", ""));
}

TEST(Balance, AdamWFollowsTheDoubleLoopAndPinsSkip) {
  const int64_t experts = 4;
  std::vector<float> bias(5, 0.0f);
  bias[4] = -1.0f;
  BalanceController controller({}, {{"layer0", experts, 5, bias.data()}});
  std::vector<double> b(4, 0.0), m(4, 0.0), v(4, 0.0);
  const Random random(3, RandomPurpose::test);
  for (int t = 1; t <= 50; ++t) {
    std::vector<int64_t> counts;
    for (uint64_t i = 0; i < 5; ++i)
      counts.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(t) * 8 + i, 100)));
    controller.step(0, counts);
    const double total = static_cast<double>(counts[0] + counts[1] + counts[2] + counts[3]);
    for (size_t i = 0; i < 4; ++i) {
      const double g = static_cast<double>(counts[i]) / total - 0.25;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      b[i] -= 1e-3 * (m[i] / (1 - std::pow(0.9, t))) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
    }
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(bias[i], b[i], 1e-6);
  EXPECT_EQ(bias[4], -1.0f);
  std::map<std::string, Tensor> state;
  controller.for_each_state([&](const std::string& name, const Tensor& t) { state[name] = t; });
  EXPECT_EQ(*state["layer0.step"].as<int64_t>(), 50);
  EXPECT_EQ(state["layer0.exp_avg"].numel(), 4);
}

TEST(Balance, SignRuleTwoStepsByHand) {
  std::vector<float> bias(3, 0.0f);
  BalanceController controller({.rule = BalanceRule::sign, .rate = 0.5}, {{"l", 3, 3, bias.data()}});
  controller.step(0, std::vector<int64_t>{6, 3, 0});  // mean 3
  EXPECT_EQ(bias, (std::vector<float>{-0.5f, 0.0f, 0.5f}));
  controller.step(0, std::vector<int64_t>{0, 1, 9});  // mean 10 / 3
  EXPECT_EQ(bias, (std::vector<float>{0.0f, 0.5f, 0.0f}));
  controller.for_each_state([](const std::string& name, const Tensor&) { ADD_FAILURE() << name; });
}

TEST(Balance, FrozenAndEmptyLayersStay) {
  std::vector<float> a(2, 0.25f), b(2, 0.25f);
  BalanceController controller({}, {{"a", 2, 2, a.data(), true}, {"b", 2, 2, b.data()}});
  controller.step(0, std::vector<int64_t>{9, 1});
  controller.step(1, std::vector<int64_t>{0, 0});
  EXPECT_EQ(a, (std::vector<float>{0.25f, 0.25f}));
  EXPECT_EQ(b, (std::vector<float>{0.25f, 0.25f}));
}

TEST(Balance, LoadEntropy) {
  EXPECT_DOUBLE_EQ(normalized_load_entropy(std::vector<int64_t>{5, 5, 5, 5, 99}, 4), 1.0);
  EXPECT_DOUBLE_EQ(normalized_load_entropy(std::vector<int64_t>{7, 0}, 2), 0.0);
  EXPECT_DOUBLE_EQ(normalized_load_entropy(std::vector<int64_t>{0, 0}, 2), 0.0);
}

}  // namespace ingot::schedule_test
