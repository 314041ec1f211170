// The end of a step by the kernels of GPUs, emulated, has the bits of the CPU: norm, clip, AdamW, AdEMAMix,
// Muon, QK-clip and the balance of routers, over tensors of none, one and several chunks and tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/philox.h"
#include "device/gpu/emulator.h"
#include "optim/adamw.h"
#include "optim/balance.h"
#include "optim/clip.h"
#include "optim/gpu_step.h"
#include "optim/gpu_step_sums.h"
#include "optim/muon.h"
#include "optim/optimizer.h"
#include "optim/power.h"
#include "optim/qk_clip.h"
#include "tape/op.h"

namespace ingot::test::gpu_step_emulated_test {

constexpr int64_t kCounts[] = {17, 0, 1, 16384, 5000, 40003};

std::vector<float> normals(int64_t count, uint64_t stream, double scale) {
  const Random random(7, RandomPurpose::test, stream);
  std::vector<float> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(scale * random.normal(i));
  return v;
}

void expect_same(const std::vector<UpdateStat>& a, const std::vector<UpdateStat>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(UpdateStat)), 0);
}

/// What kernels read of a step whose rate of tensor t is rates[t], and its stats.
struct StepWords {
  StepScalars scalars{.lr = 0, .grad_scale = 1, .step = 0, .balances = 1, .clip_factor = 0};
  UpdateDecision decision{.made = 1, .factor = 0.37};
  std::vector<double> numbers, rates;
  std::vector<UpdateStat> stats;

  DeviceStep step() {
    stats.resize(rates.size());
    return {&scalars, &decision, numbers.data(), rates.data(), stats.data()};
  }
};

/// Weights, gradients and moments of some tensors, after a few steps of AdamW or AdEMAMix.
struct Updated {
  std::vector<ParamView> params;
  std::vector<std::vector<float>> values;
  std::vector<UpdateStat> stats;

  Updated(const UpdateKernels* kernels, bool mixing, bool made = true) {
    std::vector<AdamWTensor> tensors;
    for (const int64_t count : kCounts) {
      const uint64_t stream = values.size();
      values.push_back(normals(count, stream, 0.3));
      values.push_back(normals(count, stream + 1, 0.01));
      for (int moment = 0; moment < 3; ++moment) values.emplace_back(static_cast<size_t>(count));
    }
    for (size_t t = 0; t < std::size(kCounts); ++t) {
      ParamView p;
      p.name = std::to_string(t), p.shape = {kCounts[t]};
      p.master = values[5 * t].data(), p.grad = values[5 * t + 1].data();
      params.push_back(p);
    }
    for (size_t t = 0; t < params.size(); ++t) {
      const auto moment = [&](size_t kind) { return StoredValues(values[5 * t + kind].data()); };
      tensors.push_back({&params[t], moment(2), moment(3), 3e-3 / static_cast<double>(t + 1), 0.1,
                         mixing ? moment(4) : StoredValues(), static_cast<int64_t>(t)});
    }
    const AdEMAMixConfig mix{.beta3 = 0.99, .alpha = 2, .warmup = 10};
    StepWords words;
    words.decision.made = made ? 1 : 0;
    for (const AdamWTensor& t : tensors) words.rates.push_back(t.lr);
    for (int64_t step = 1; step <= 3; ++step) {
      if (kernels == nullptr) {
        stats = adamw_step(tensors, {}, step, 0.37, mix);
        continue;
      }
      const AdamWNumbers n = adamw_numbers({}, mix, step);
      words.numbers = {n.inv_sqrt_correction2, n.correction1, n.one_minus_beta3, n.alpha};
      kernels->adamw(tensors, {}, words.step());
      stats = words.stats;
    }
  }
};

/// The same of matrices after two steps of Muon.
struct Orthogonalised {
  std::vector<ParamView> params;
  std::vector<std::vector<float>> values;
  std::vector<UpdateStat> stats;

  Orthogonalised(const UpdateKernels* kernels, const MuonConfig& config, bool made = true) {
    const auto add = [&](const Shape& shape, int64_t matrices, std::vector<int64_t> splits) {
      ParamView p;
      p.name = std::to_string(params.size());
      p.shape = shape, p.matrices = matrices, p.row_splits = std::move(splits);
      params.push_back(p);
      values.push_back(normals(shape.numel(), values.size(), 0.3));
      values.push_back(normals(shape.numel(), values.size(), 0.01));
      values.emplace_back(static_cast<size_t>(shape.numel()));
    };
    add({24, 16}, 1, {16, 4, 4});
    add({3, 12, 20}, 3, {});  // beside each other with the next
    add({20, 12}, 1, {});
    add({0, 5}, 1, {});
    add({2, 18, 10}, 2, {10, 8});
    add({70, 66}, 1, {});    // nearly square, of two tiles a side
    add({131, 140}, 1, {});  // three tiles, two chunks
    add({66, 260}, 1, {});
    add({1, 9}, 1, {});
    add({72, 200}, 1, {});  // which Hopper's instructions take
    std::vector<MuonTensor> tensors;
    for (size_t t = 0; t < params.size(); ++t) {
      params[t].master = values[3 * t].data(), params[t].grad = values[3 * t + 1].data();
      const bool has_momentum = needs_momentum(config);
      tensors.push_back({&params[t], has_momentum ? StoredValues(values[3 * t + 2].data()) : StoredValues(),
                         1e-2 / static_cast<double>(t + 1), 0.1, static_cast<int64_t>(t)});
    }
    Muon muon(config);
    StepWords words;
    words.decision.made = made ? 1 : 0;
    for (const MuonTensor& t : tensors) words.rates.push_back(t.lr);
    for (int64_t step = 0; step < 2; ++step) {
      if (kernels == nullptr) {
        stats = muon.step(tensors, step, 0.37);
        continue;
      }
      words.numbers = {muon.momentum_at(step)};
      kernels->muon(muon.update(tensors), words.step());
      stats = words.stats;
    }
  }
};

/// The share of its movement by which each matrix of `a` ends elsewhere than that of `b`.
std::vector<double> distances(const Orthogonalised& a, const Orthogonalised& b) {
  std::vector<double> all;
  for (size_t t = 0; t < a.params.size(); ++t) {
    const std::vector<float> begin = normals(std::ssize(a.values[3 * t]), 3 * t, 0.3);
    double apart = 0, moved = 0;
    for (size_t i = 0; i < begin.size(); ++i) {
      apart += std::pow(double{a.values[3 * t][i]} - b.values[3 * t][i], 2);
      moved += std::pow(double{b.values[3 * t][i]} - begin[i], 2);
    }
    if (!begin.empty()) all.push_back(std::sqrt(apart / moved));
  }
  return all;
}

class GpuStep : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override { set_emulation({true, GetParam()}); }
  void TearDown() override { set_emulation({}); }
  std::vector<double> sum_squares(const std::vector<ParamView>& params) const {
    std::vector<double> sums(params.size());
    gpu_.sum_squares(params, sums.data(), nullptr);
    return sums;
  }
  UpdateDecision decision(const std::vector<ParamView>& params, const StepScalars& scalars, double max_norm,
                          double loss) const {
    const std::vector<double> sums = sum_squares(params);
    UpdateDecision decision{};
    gpu_.decide(params, sums.data(), &loss, max_norm, &scalars, &decision);
    return decision;
  }
  const UpdateKernels& gpu_ = gpu_update_kernels();
};

TEST_P(GpuStep, HasTheCpusUpdates) {
  for (const bool mixing : {false, true}) {
    const int64_t before = emulated_launches()["adamw"];
    const Updated cpu(nullptr, mixing);
    EXPECT_EQ(emulated_launches()["adamw"], before);
    const Updated emulated(&gpu_, mixing);
    EXPECT_EQ(emulated_launches()["adamw"], before + 3);
    EXPECT_EQ(emulated.values, cpu.values);
    expect_same(emulated.stats, cpu.stats);
    EXPECT_GT(cpu.stats.back().update_rms, 0);
    const Updated refused(&gpu_, mixing, false);
    for (size_t t = 0; t < refused.values.size(); ++t) {
      const bool is_random = t % 5 < 2;
      EXPECT_EQ(refused.values[t], is_random
                                       ? normals(std::ssize(refused.values[t]), t, t % 5 == 0 ? 0.3 : 0.01)
                                       : std::vector<float>(refused.values[t].size()));
    }
  }
}

TEST_P(GpuStep, HasTheCpusNormAndClips) {
  std::vector<std::vector<float>> grads;
  std::vector<ParamView> params;
  for (const int64_t count : kCounts) grads.push_back(normals(count, static_cast<uint64_t>(count), 1));
  for (std::vector<float>& g : grads) {
    ParamView p;
    p.shape = {static_cast<int64_t>(g.size())}, p.grad = g.data();
    params.push_back(p);
  }
  for (const double scale : {1.0, 1.0 / 300, -0.1})
    for (const double most : {0.0, 1.0, 1e9}) {
      const GradNorm cpu = gradient_norm(params, scale);
      EXPECT_EQ(sum_squares(params), cpu.sum_squares);
      const UpdateDecision found = decision(params, {.grad_scale = scale}, most, 2.5);
      EXPECT_EQ(found.made, 1);
      EXPECT_EQ(found.factor, scale * clip_factor(cpu.norm, most));
      EXPECT_EQ(decision(params, {.grad_scale = scale, .clip_factor = 0.25}, most, 2.5).factor, scale * 0.25);
      EXPECT_EQ(decision(params, {.grad_scale = scale}, most, std::nan("")).made, 0);
    }
  grads.back()[39000] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(decision(params, {.grad_scale = 1}, 1, 2.5).made, 0);
}

TEST_P(GpuStep, HasTheCpusMuon) {
  MuonConfig plain, lerp, none;
  plain.nesterov = false, plain.newton_schulz = polar_express();
  lerp.form = MomentumForm::lerp, lerp.scale = MuonScale::spectral, lerp.newton_schulz.steps = 3;
  none.momentum = 0;
  for (const MuonConfig& config : {MuonConfig{}, plain, lerp, none}) {
    const Orthogonalised cpu(nullptr, config), emulated(&gpu_, config);
    EXPECT_EQ(emulated.values, cpu.values);
    expect_same(emulated.stats, cpu.stats);
    for (const UpdateStat& s : cpu.stats) EXPECT_EQ(s.update_rms > 0, &s != &cpu.stats[3]);
    if (config.nesterov) continue;
    const Orthogonalised refused(&gpu_, config, false);
    for (size_t t = 0; t < refused.values.size(); ++t) {
      const std::vector<float>& values = refused.values[t];
      EXPECT_EQ(values, t % 3 == 2 ? std::vector<float>(values.size())
                                   : normals(std::ssize(values), t, t % 3 == 0 ? 0.3 : 0.01));
    }
  }
}

TEST_P(GpuStep, OrthogonalisesInBf16AsNearAsTheCpu) {
  MuonConfig config;
  const Orthogonalised exact(nullptr, config);
  config.newton_schulz.precision = NewtonSchulzPrecision::bf16;
  const Orthogonalised cpu(nullptr, config);
  const std::vector<double> expected = distances(cpu, exact);
  std::vector<std::vector<float>> first;
  for (const bool hopper : {false, true}) {
    set_emulation({.on = true, .seed = GetParam(), .mma = true, .wgmma = hopper});
    const char* const kernel = hopper ? "symmetric_wgmma_product" : "symmetric_mma_product";
    const int64_t before = emulated_launches()[kernel];
    const Orthogonalised emulated(&gpu_, config);
    EXPECT_GT(emulated_launches()[kernel], before);
    const std::vector<double> found = distances(emulated, exact);
    for (size_t t = 0; t < found.size(); ++t) {
      EXPECT_LE(found[t], 1.2 * expected[t]) << t << ": the CPU's distance is " << expected[t];
      EXPECT_GT(found[t], 0) << t;
    }
    if (!hopper) first = emulated.values;
    EXPECT_EQ(emulated.values, first) << "by Hopper's instructions";
  }
}

TEST_P(GpuStep, AddsTheSizesOfManyChunksInOrder) {
  const std::vector<int64_t> first_chunk = {0, 130, 130, 131, 400}, first_block = {0, 2, 2, 4},
                             counts = {9, 0, 7};
  const std::vector<float> values = normals(800, 1, 1);
  std::vector<UpdateSums> sums;
  for (size_t i = 0; i < 400; ++i)
    sums.push_back({std::exp(8 * values[2 * i]), std::exp(8 * values[2 * i + 1])});
  std::vector<UpdateStat> expected;
  for (size_t t = 0; t < 3; ++t) {
    double update = 0, weight = 0;
    for (int64_t b = first_block[t]; b < first_block[t + 1]; ++b) {
      double block_update = 0, block_weight = 0;
      for (int64_t c = first_chunk[static_cast<size_t>(b)]; c < first_chunk[static_cast<size_t>(b) + 1];
           ++c) {
        block_update += static_cast<double>(sums[static_cast<size_t>(c)].update_sq);
        block_weight += static_cast<double>(sums[static_cast<size_t>(c)].weight_sq);
      }
      update += block_update, weight += block_weight;
    }
    const double n = static_cast<double>(std::max<int64_t>(1, counts[t]));
    expected.push_back({std::sqrt(update / n), std::sqrt(weight / n)});
  }
  std::vector<UpdateStat> stats(4);
  const std::vector<int64_t> indices = {2, 0, 3};
  GpuWorkspace memory;
  gpu_update_stats(memory, memory.list(sums), {first_chunk, first_block, counts, indices}, stats.data());
  expect_same({stats[2], stats[0], stats[3]}, expected);
  EXPECT_EQ(stats[1].update_rms, 0);
}

/// Weights of attention layers and the largest logits of their heads.
struct Attention {
  std::vector<std::vector<float>> values;
  std::vector<ParamView> params;
  std::vector<QkClipLayer> layers;

  Attention() {
    const Shape shapes[] = {{64, 300}, {64}, {60, 20}, {48, 20}, {3}};
    for (const Shape& shape : shapes) values.push_back(normals(shape.numel(), values.size(), 0.3));
    for (size_t i = 0; i < values.size(); ++i) {
      ParamView p;
      p.name = std::to_string(i), p.shape = shapes[i], p.master = values[i].data();
      params.push_back(p);
    }
    // Four query heads over two key heads, then their values; a bias; latent attention; a temperature.
    layers.push_back({4, 2, {{params[0], 0, 8}, {params[1], 0, 8}}, {{params[0], 32, 8}}, {}, {}});
    layers.push_back({4, 4, {{params[2], 0, 10, 15}}, {{params[3], 0, 8, 12}}, {}, {{params[2], 10, 5, 15}}});
    layers.push_back({6, 3, {}, {}, {{params[4], 0, 1}}, {}});
  }
};

TEST_P(GpuStep, HasTheCpusClippedHeads) {
  const std::vector<double> tops[] = {{3, 0.5, 7, 2.5}, {0, 1, 2.01, 1e6}, {9, 1, 2, 2, 0, 2.5}};
  for (const double alpha : {0.0, 0.2, 0.5, 1.0})
    for (const double threshold : {2.0, 1e7}) {
      Attention cpu, emulated;
      int64_t clipped = 0;
      std::vector<QkClipTask> tasks;
      for (size_t i = 0; i < std::size(tops); ++i) {
        clipped += qk_clip({threshold, alpha}, cpu.layers[i], tops[i]);
        tasks.push_back({&emulated.layers[i], tops[i].data()});
      }
      double counted = 100;
      StepWords words;
      words.decision.made = 0;
      gpu_.qk_clip({threshold, alpha}, tasks, &counted, words.step());
      EXPECT_EQ(counted, 100);
      EXPECT_EQ(emulated.values, Attention().values);
      words.decision.made = 1;
      gpu_.qk_clip({threshold, alpha}, tasks, &counted, words.step());
      EXPECT_EQ(counted, static_cast<double>(100 + clipped));
      EXPECT_EQ(clipped, threshold > 1e6 ? 0 : 7);
      EXPECT_EQ(emulated.values, cpu.values);
    }
}

TEST_P(GpuStep, HasTheCpusBalance) {
  constexpr int64_t kExperts = 150;
  for (const BalanceRule rule : {BalanceRule::adamw, BalanceRule::sign}) {
    struct Side {
      std::vector<float> bias = std::vector<float>(kExperts + 1, 0.25f), moments[2], load;
      int64_t step = 3;
      Side() : load(kExperts, 0.5f) {
        moments[0].assign(kExperts, 0.01f), moments[1].assign(kExperts, 0.0002f);
      }
    } cpu[3], emulated[3];
    BalanceController controller({.rule = rule, .rate = 0.02},
                                 {{"a", kExperts, kExperts + 1, cpu[0].bias.data()}});
    for (uint64_t step = 0; step < 4; ++step) {
      const Random random(5, RandomPurpose::test, step);
      std::vector<double> counts(kExperts), nothing(kExperts);
      std::vector<int64_t> whole;
      for (size_t i = 0; i < counts.size(); ++i) {
        whole.push_back(static_cast<int64_t>(random.below(i, 1000)));
        counts[i] = static_cast<double>(whole.back());
      }
      // The third layer's biases stay; the second one had no tokens.
      std::vector<BalanceArgs> args;
      std::vector<BalanceTask> tasks;
      for (auto* side : {cpu, emulated})
        for (size_t l = 0; l < 3; ++l) {
          Side& s = side[l];
          args.push_back(
              controller.args_at(0, {s.bias.data(), s.moments[0].data(), s.moments[1].data(), &s.step},
                                 l == 1 ? nothing.data() : counts.data()));
        }
      for (size_t l = 0; l < 3; ++l) {
        if (l != 2) INGOT_ISA_CALL(balance_experts)(args[l]);
        if (l != 1) load_fractions(whole, cpu[l].load.data());
        tasks.push_back(
            {args[3 + l].counts, kExperts, emulated[l].load.data(), l != 2 ? &args[3 + l] : nullptr});
      }
      const float bias = emulated[0].bias[0], load = emulated[0].load[0];
      StepWords words;
      words.decision.made = 0;
      gpu_.balance(tasks, words.step());
      EXPECT_EQ(emulated[0].load[0], load);
      words.decision.made = 1, words.scalars.balances = 0;
      gpu_.balance(tasks, words.step());
      EXPECT_EQ(emulated[0].bias[0], bias);
      EXPECT_NE(emulated[0].load[0], load);
      words.scalars.balances = 1;
      gpu_.balance(tasks, words.step());
      for (size_t l = 0; l < 3; ++l) {
        EXPECT_EQ(emulated[l].bias, cpu[l].bias);
        for (int m = 0; m < 2; ++m) EXPECT_EQ(emulated[l].moments[m], cpu[l].moments[m]);
        EXPECT_EQ(emulated[l].load, cpu[l].load);
        EXPECT_EQ(emulated[l].step, cpu[l].step);
      }
    }
    EXPECT_NE(cpu[0].bias[0], 0.25f);
    EXPECT_EQ(cpu[0].bias.back(), 0.25f);
    EXPECT_EQ(cpu[0].step, rule == BalanceRule::sign ? 3 : 7);
    EXPECT_EQ(cpu[1].bias[0], 0.25f);
  }
}

TEST(GpuStepSums, AddWhatMicroBatchesMeasure) {
  set_emulation({true, 1});
  std::vector<int32_t> targets;
  std::vector<float> choices;
  const std::vector<float> logprob = normals(700, 1, 1), logits = normals(300, 2, 1);
  double loss = 1, expected = 1;
  for (size_t t = 0; t < logprob.size(); ++t) {
    targets.push_back(t % 3 == 0 ? -1 : 5);
    if (t % 3 != 0) expected += double{logprob[t]};
  }
  emulated::launch_add_logprobs({}, {logprob.data(), targets.data(), std::ssize(logprob), &loss});
  EXPECT_NEAR(loss, expected, 1e-9);
  std::vector<double> largest(300, 0.5), counts(300, 2);
  for (int i = 0; i < 300; ++i) choices.push_back(static_cast<float>(i % 7));
  emulated::launch_add_values({}, {logits.data(), 300, true, largest.data()});
  emulated::launch_add_values({}, {choices.data(), 300, false, counts.data()});
  for (size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(largest[i], std::max(0.5, double{logits[i]}));
    EXPECT_EQ(counts[i], 2 + static_cast<double>(i % 7));
  }
  set_emulation({});
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuStep, ::testing::Values(1, 2, 3));

/// A rule that a program registers.
class HostRule final : public UpdateRule {
  std::vector<StateSlot> slots(const ParamView&) const override { return {}; }
  std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t, double) override {
    return std::vector<UpdateStat>(tensors.size());
  }
};

/// What an optimizer of this rule says where the simulated device has no kernels but GPUs'.
std::string refusal(const OptimizerConfig& config, ParamView p) {
  float value[6] = {};
  p.name = "w", p.shape = {2, 3}, p.grad = value;
  if (p.master.data == nullptr) p.master = value;
  try {
    Optimizer(config, {p}).kernels_on(DeviceKind::sim);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

TEST(GpuStepAlone, RefusesWhatHasNoKernels) {
  register_optimizer("host-rule", RuleTakes::elements,
                     [](const OptimizerConfig&, int64_t) { return std::make_unique<HostRule>(); });
  OptimizerConfig muon, rounded, moments, host;
  rounded.muon.newton_schulz.precision = NewtonSchulzPrecision::bf16;
  moments.first_moment = ValueStorage::bf16_stochastic;
  host.groups.matrices = "host-rule";
  uint16_t halves[6] = {};
  ParamView stored, copied;
  stored.master = StoredValues(halves, ValueStorage::bf16_stochastic);
  copied.compute = halves;
  const std::string none = "has no kernels on device 'sim'";
  for (const bool alone : {false, true}) {
    set_emulation({true, 1, alone});
    EXPECT_EQ(refusal(muon, {}), "");
    const auto said = [&](const std::string& text) { return alone ? text : ""; };
    EXPECT_EQ(refusal(rounded, {}).find("for Newton-Schulz in bf16") != std::string::npos, alone);
    EXPECT_EQ(refusal(moments, {}).find("moments are not f32") != std::string::npos, alone);
    EXPECT_EQ(refusal(muon, stored).find("weights or gradients are not f32") != std::string::npos, alone);
    EXPECT_EQ(refusal(muon, copied).find("a copy to compute with") != std::string::npos, alone);
    EXPECT_EQ(refusal(host, {}).substr(0, 74),
              said("the update by host-rule " + none + " (cuda: the rule is host code)").substr(0, 74));
  }
  set_kernel_policy(KernelPolicy::any);
  EXPECT_EQ(refusal(host, {}), "");
  set_kernel_policy(KernelPolicy::strict);
  set_emulation({});
}

TEST(Power, IsThatOfTheLibrary) {
  EXPECT_EQ(power(0, 0), 1);
  EXPECT_EQ(power(0, 0.5), 0);
  EXPECT_EQ(power(1, 1e9), 1);
  EXPECT_EQ(power(0.3, 1), 0.3);
  EXPECT_EQ(power(0.9, 1e9), 0);
  EXPECT_TRUE(std::isnan(power(std::nan(""), 0.5)));
  const Random random(3, RandomPurpose::test);
  for (uint64_t i = 0; i < 20000; ++i) {
    const double u = random.uniform(2 * i), v = random.uniform(2 * i + 1);
    const double x = i % 3 == 0 ? std::exp(-30 * u) : u, y = i % 2 == 0 ? v : std::floor(300 * v);
    const double expected = std::pow(x, y);
    if (expected < 1e-300) continue;
    ASSERT_NEAR(power(x, y) / expected, 1, (4 + 2 * std::abs(y * std::log(x))) * 0x1p-52) << x << " " << y;
  }
}

}  // namespace ingot::test::gpu_step_emulated_test
