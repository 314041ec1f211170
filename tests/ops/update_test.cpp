// The end of a training step on a device has the CPU's bits: norm, clip, AdamW, AdEMAMix, Muon, QK-clip, the
// balance of routers and what micro-batches add up, eager and as a graph. The simulated device makes it by
// host code; with INGOT_OP_CHECK (support/op_check.h) kernels of GPUs do, which so prove themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "base/philox.h"
#include "device/device.h"
#include "device/gpu/emulator.h"
#include "ops/gpu_proof.h"
#include "ops/gpu_registry.h"
#include "optim/clip.h"
#include "optim/device_update.h"
#include "support/op_check.h"

namespace ingot::test::update_test {

constexpr int64_t kExperts = 5, kHeads = 4, kTokens = 300;

std::vector<float> normals(int64_t count, uint64_t stream, double scale) {
  const Random random(11, RandomPurpose::test, stream);
  std::vector<float> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(scale * random.normal(i));
  return v;
}

/// Parameters of none, one and several chunks, tiles and matrices.
std::vector<ParamView> parameters() {
  std::vector<ParamView> all;
  const auto add = [&](const Shape& shape, int64_t matrices = 1, std::vector<int64_t> splits = {}) {
    ParamView p;
    p.name = "p" + std::to_string(all.size()), p.shape = shape, p.matrices = matrices;
    p.row_splits = std::move(splits);
    all.push_back(p);
  };
  add({64, 80});  // queries and keys
  add({24, 16}, 1, {16, 4, 4});
  add({3, 12, 20}, 3);
  add({0, 5});
  add({17});
  add({131, 140});
  add({72, 200});
  add({40003});
  add({1});
  return all;
}

/// A training step's values in memory that a device may have, and the steps.
class Steps {
 public:
  Steps(DeviceKind device, const OptimizerConfig& config, BalanceRule rule)
      : device_(device), params_(parameters()) {
    for (size_t i = 0; i < params_.size(); ++i) {
      weights_.push_back(memory(normals(params_[i].numel(), i, 0.3)));
      grads_.push_back(memory(std::vector<float>(static_cast<size_t>(params_[i].numel()))));
      params_[i].master = floats(weights_[i].data()), params_[i].grad = floats(grads_[i].data());
    }
    bias_ = memory(std::vector<float>(kExperts + 1, 0.25F));
    load_ = memory(std::vector<float>(kExperts, 0.5F));
    optimizer_ = std::make_unique<Optimizer>(config, params_, OptimizerRun{.total_steps = 10},
                                             Backing::memory, device);
    balance_ = std::make_unique<BalanceController>(
        BalanceConfig{.rule = rule, .rate = 0.02},
        std::vector<BalanceView>{{"b", kExperts, kExperts + 1, floats(bias_.data())}}, device);
  }

  /// A step of two micro-batches. `spoiled`: a gradient is not finite. Returns how many heads were clipped.
  int64_t step(int64_t number, bool spoiled = false) {
    for (size_t i = 0; i < grads_.size(); ++i)
      copy(grads_[i], normals(params_[i].numel(), 100 + 20 * static_cast<uint64_t>(number) + i, 0.01));
    if (spoiled) floats(grads_[7].data())[39000] = std::numeric_limits<float>::infinity();
    return device_ == DeviceKind::cpu ? on_cpu(number) : on_device(number);
  }

  /// All values, sizes of updates and their number.
  std::vector<std::vector<float>> values() {
    std::vector<std::vector<float>> all;
    const auto add = [&](const void* data, int64_t count) {
      all.emplace_back(static_cast<const float*>(data), static_cast<const float*>(data) + count);
    };
    for (size_t i = 0; i < params_.size(); ++i) add(weights_[i].data(), params_[i].numel());
    optimizer_->for_each_slot(
        [&](const ParamView&, const std::string&, const Tensor& t) { add(t.data, t.numel()); });
    balance_->for_each_state([&](const std::string&, const Tensor& t) {
      if (t.dtype() == DType::f32) add(t.data, t.numel());
    });
    add(bias_.data(), kExperts + 1), add(load_.data(), kExperts);
    return all;
  }
  std::vector<double> sizes() const {
    std::vector<double> all{static_cast<double>(optimizer_->steps())};
    for (const UpdateStat& s : optimizer_->update_stats())
      all.insert(all.end(), {s.update_rms, s.weight_rms});
    return all;
  }

 private:
  static float* floats(void* data) { return static_cast<float*>(data); }
  Buffer memory(const std::vector<float>& values) const {
    Buffer b(static_cast<int64_t>(values.size() * sizeof(float)), Backing::memory, device_,
             "a test's values");
    copy(b, values);
    return b;
  }
  static void copy(Buffer& to, const std::vector<float>& values) {
    if (!values.empty()) std::copy(values.begin(), values.end(), floats(to.data()));
  }

  static double lr(int64_t number) { return 0.01 / static_cast<double>(number + 1); }
  static constexpr double kScale = 1.0 / 300;
  static QkClipConfig clip_config() { return {.threshold = 1.5, .alpha = 0.4}; }
  static QkClipLayer clip_layer(const ParamView& p) { return {kHeads, 2, {{p, 0, 8}}, {{p, 32, 8}}, {}, {}}; }
  static std::vector<float> logits(int64_t number, uint64_t batch) {
    return normals(kHeads, 1000 + 2 * static_cast<uint64_t>(number) + batch, 2);
  }
  static std::vector<float> choices(int64_t number, int64_t batch) {
    std::vector<float> all;
    for (int64_t e = 0; e < kExperts; ++e) all.push_back(static_cast<float>((e * 7 + number + batch) % 11));
    all.push_back(3);
    return all;
  }

  int64_t on_cpu(int64_t number) {
    const GradNorm norm = gradient_norm(params_, kScale);
    if (!norm.finite()) return 0;
    optimizer_->step({lr(number), kScale, clip_factor(norm.norm, optimizer_->config().clip)});
    std::vector<double> largest(kHeads);
    std::vector<int64_t> counts(kExperts + 1);
    for (int batch = 0; batch < 2; ++batch) {
      const std::vector<float> l = logits(number, static_cast<uint64_t>(batch));
      const std::vector<float> c = choices(number, batch);
      for (size_t h = 0; h < kHeads; ++h) largest[h] = std::max(largest[h], double{l[h]});
      for (size_t e = 0; e <= kExperts; ++e) counts[e] += static_cast<int64_t>(c[e]);
    }
    const int64_t clipped = qk_clip(clip_config(), clip_layer(params_[0]), largest);
    load_fractions({counts.data(), kExperts}, floats(load_.data()));
    balance_->step(0, counts);
    return clipped;
  }

  int64_t on_device(int64_t number) {
    for (size_t i = 0; i < params_.size(); ++i) weights_[i].on_device(), grads_[i].on_device();
    if (update_ == nullptr) {
      std::vector<ParamView> there = params_;
      for (size_t i = 0; i < there.size(); ++i)
        there[i].master = floats(weights_[i].on_device()), there[i].grad = floats(grads_[i].on_device());
      update_ = std::make_unique<DeviceUpdate>(device_, *optimizer_, there,
                                               AfterUpdate{.clip = clip_config(),
                                                           .clip_layers = {clip_layer(there[0])},
                                                           .moe_layers = {0},
                                                           .experts = kExperts,
                                                           .balance = balance_.get(),
                                                           .biases = {bias_.on_device()},
                                                           .loads = {load_.on_device()}});
    }
    bias_.on_device(), load_.on_device();
    Device& device = device_of(device_);
    update_->begin_step();
    const StepSums& sums = update_->sums();
    const auto there = [&](Buffer& b, const void* from, const Shape& shape, DType type) {
      b = Buffer(shape.numel() * 4, Backing::memory, device_, "what a micro-batch measured");
      std::copy_n(static_cast<const char*>(from), b.bytes(), static_cast<char*>(b.data()));
      return Tensor(b.on_device(), shape, type, device_);
    };
    const std::vector<float> logprob = normals(kTokens, 5, 1);
    const std::vector<int32_t> targets(kTokens, 1);
    Buffer measured[8];
    for (int batch = 0; batch < 2; ++batch) {
      Buffer* const b = measured + 4 * batch;
      const std::vector<float> l = logits(number, static_cast<uint64_t>(batch));
      const std::vector<float> c = choices(number, batch);
      add_logprobs(there(b[0], logprob.data(), {kTokens}, DType::f32),
                   there(b[1], targets.data(), {kTokens}, DType::i32), sums.loss);
      add_values(there(b[2], l.data(), {kHeads}, DType::f32), sums.logits.at(0), true);
      add_values(there(b[3], c.data(), {kExperts}, DType::f32), sums.counts.at(0), false);
    }
    update_->launch({lr(number), kScale}, true);
    const Tensor block = update_->block();
    std::vector<double> host(static_cast<size_t>(block.numel()));
    device.download(host.data(), block.data, block.bytes());
    return update_->take(Tensor::of(host.data(), block.shape())).clipped_heads;
  }

  const DeviceKind device_;
  std::vector<ParamView> params_;
  std::vector<Buffer> weights_, grads_;
  Buffer bias_, load_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<BalanceController> balance_;
  std::unique_ptr<DeviceUpdate> update_;
};

/// Where the update is made: by host code, or by kernels of GPUs.
struct Way {
  DeviceKind device;
  Emulation emulation = {};
};
std::vector<Way> ways(bool on_tensor_cores) {
  if (checked_kernels() == "cuda") return {{DeviceKind::cuda}};
  if (checked_kernels() != "emulated") return {{DeviceKind::sim}};
  std::vector<Way> all;
  for (const uint64_t seed : {1, 2, 3})
    all.push_back(
        {DeviceKind::sim,
         {.on = true, .seed = seed, .mma = on_tensor_cores, .wgmma = on_tensor_cores && seed != 1}});
  return all;
}

/// While it lives kernels run that have not proven themselves.
class Unproven {
 public:
  Unproven() { set_kernels("unproven"); }
  ~Unproven() {
    set_kernels("strict");
    set_emulation({});
  }
  Unproven(const Unproven&) = delete;
  Unproven& operator=(const Unproven&) = delete;
};

struct Case {
  std::string name;
  OptimizerConfig config;
  BalanceRule rule = BalanceRule::adamw;
};
std::vector<Case> cases() {
  Case muon{"muon", {}}, adamw{"adamw", {}, BalanceRule::sign}, mix{"ademamix", {}}, plain{"muon, plain", {}};
  adamw.config.groups.matrices = "adamw";
  adamw.config.groups.rules.push_back({"p5", {}, 0.5, 0.0});
  mix.config.groups.matrices = mix.config.groups.others = "ademamix";
  mix.config.clip = 1e-3;
  plain.config.muon.nesterov = false, plain.config.muon.form = MomentumForm::lerp;
  plain.config.muon.momentum_warmup = 3, plain.config.clip = 0;
  return {muon, adamw, mix, plain};
}

/// The first two steps are eager, then they are replayed; the fourth one is not made.
TEST(Update, HasTheCpusBits) {
  const Unproven unproven;
  for (const Case& c : cases()) {
    const int failed_before = failures_so_far();
    for (const Way& way : ways(false)) {
      set_emulation(way.emulation);
      Steps cpu(DeviceKind::cpu, c.config, c.rule), there(way.device, c.config, c.rule);
      int64_t clipped = 0;
      for (int64_t number = 0; number < 5; ++number) {
        const int64_t expected = cpu.step(number, number == 3);
        clipped += expected;
        EXPECT_EQ(there.step(number, number == 3), expected) << c.name << ", step " << number;
        EXPECT_EQ(there.sizes(), cpu.sizes()) << c.name << ", step " << number;
        EXPECT_EQ(there.values(), cpu.values()) << c.name << ", step " << number;
      }
      EXPECT_GT(clipped, 0);
    }
    record_kernel_case(kUpdateOnGpu, c.name, failures_so_far() == failed_before);
  }
}

/// How far the weights of `a` are from those of `b`, as a share of how far they moved.
double distance(Steps& a, Steps& b, Steps& begin) {
  const auto x = a.values(), y = b.values(), z = begin.values();
  double apart = 0, moved = 0;
  for (const size_t matrix : {0, 1, 2, 5, 6})
    for (size_t i = 0; i < x[matrix].size(); ++i) {
      apart += std::pow(double{x[matrix][i]} - y[matrix][i], 2);
      moved += std::pow(double{y[matrix][i]} - z[matrix][i], 2);
    }
  return std::sqrt(apart / moved);
}

/// As near to f32 as the CPU's products in bf16, and the same each time.
TEST(Update, OfMuonInBf16IsNearF32) {
  const Unproven unproven;
  OptimizerConfig config;
  Steps begin(DeviceKind::cpu, config, BalanceRule::adamw),
      exact(DeviceKind::cpu, config, BalanceRule::adamw);
  config.muon.newton_schulz.precision = NewtonSchulzPrecision::bf16;
  Steps cpu(DeviceKind::cpu, config, BalanceRule::adamw);
  for (int64_t number = 0; number < 3; ++number) exact.step(number), cpu.step(number);
  const double expected = distance(cpu, exact, begin);
  const int failed_before = failures_so_far();
  std::vector<std::vector<float>> first;
  for (const Way& way : ways(true)) {
    set_emulation(way.emulation);
    for (int time = 0; time < (way.emulation.on ? 1 : 2); ++time) {
      Steps there(way.device, config, BalanceRule::adamw);
      for (int64_t number = 0; number < 3; ++number) there.step(number);
      const double found = distance(there, exact, begin);
      EXPECT_GT(found, 0);
      EXPECT_LE(found, 1.2 * expected);
      const auto values = there.values();
      if (first.empty()) first = values;
      EXPECT_EQ(values, first);
    }
  }
  record_kernel_case(kUpdateOnTensorCores, "muon in bf16", failures_so_far() == failed_before);
}

}  // namespace ingot::test::update_test
