// See update_rule.h: AdamW, AdEMAMix and Muon as rules.
#include "optim/update_rule.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "optim/optimizer.h"
#include "optim/update_kernels.h"

namespace ingot {
namespace {

/// Rounded to nearest, a bf16 moment that decays by less than half a unit never moves again.
void require_moves(const char* name, double beta, ValueStorage storage) {
  if (storage != ValueStorage::bf16 || 1 - beta >= 0x1p-8) return;
  throw Error(
      fmt::format(
          "{} = {} decays a moment by {:.2g} per step, which bf16 rounds away (half a unit is {:.2g})", name,
          beta, 1 - beta, 0x1p-8),
      "store the moment as bf16_stochastic or f32");
}

class AdamRule final : public UpdateRule {
 public:
  AdamRule(const OptimizerConfig& config, bool mixing, int64_t total_steps)
      : config_(config), mixing_(mixing) {
    if (config_.ademamix.warmup == 0) config_.ademamix.warmup = total_steps;
    validate(config.adamw);
    if (mixing) validate(config.ademamix);
    require_moves("beta1", config.adamw.beta1, config.first_moment);
    require_moves("beta2", config.adamw.beta2, config.second_moment);
    if (mixing) require_moves("beta3", config.ademamix.beta3, config.first_moment);
  }
  std::vector<StateSlot> slots(const ParamView& p) const override {
    std::vector<StateSlot> slots = {{"exp_avg", p.part_shape(), config_.first_moment},
                                    {"exp_avg_sq", p.part_shape(), config_.second_moment}};
    if (mixing_) slots.push_back({"exp_avg_slow", p.part_shape(), config_.first_moment});
    return slots;
  }
  std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t step,
                               double grad_scale) override {
    return adamw_step(list_of(tensors), config_.adamw, step + 1, grad_scale, config_.ademamix);
  }
  const char* refuse_kernels(const ParamView&, DeviceKind) const override { return nullptr; }
  std::vector<double> numbers(int64_t step) const override {
    const AdamWNumbers n = adamw_numbers(config_.adamw, config_.ademamix, step + 1);
    return {n.inv_sqrt_correction2, n.correction1, n.one_minus_beta3, n.alpha};
  }
  void launch(const UpdateKernels& kernels, std::span<const RuleTensor> tensors,
              const DeviceStep& step) const override {
    kernels.adamw(list_of(tensors), config_.adamw, step);
  }

 private:
  std::vector<AdamWTensor> list_of(std::span<const RuleTensor> tensors) const {
    std::vector<AdamWTensor> list;
    for (const RuleTensor& t : tensors)
      list.push_back({t.param, t.state[0], t.state[1], t.lr, t.weight_decay,
                      mixing_ ? t.state[2] : StoredValues(), t.index});
    return list;
  }

  OptimizerConfig config_;
  bool mixing_;
};

class MuonRule final : public UpdateRule {
 public:
  MuonRule(const OptimizerConfig& config, int64_t total_steps)
      : storage_(config.first_moment), muon_(config.muon, total_steps) {
    require_moves("muon's momentum", config.muon.momentum, config.first_moment);
  }
  std::vector<StateSlot> slots(const ParamView& p) const override {
    if (!needs_momentum(muon_.config())) return {};
    return {{"momentum", p.part_shape(), storage_}};
  }
  std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t step,
                               double grad_scale) override {
    return muon_.step(list_of(tensors), step, grad_scale);
  }
  const char* refuse_kernels(const ParamView& p, DeviceKind device) const override {
    if (muon_.config().newton_schulz.precision != NewtonSchulzPrecision::f32)
      if (const char* const reason = refuse_bf16_products(device)) return reason;
    const bool whole = p.numel() == 0 || p.numel() == p.shape.numel();
    return whole && p.sharding.group == nullptr ? nullptr : "ranks divide matrices";
  }
  std::vector<double> numbers(int64_t step) const override { return {muon_.momentum_at(step)}; }
  void launch(const UpdateKernels& kernels, std::span<const RuleTensor> tensors,
              const DeviceStep& step) const override {
    kernels.muon(muon_.update(list_of(tensors)), step);
  }
  int64_t scratch_bytes(std::span<const ParamView* const> params) const override {
    std::vector<MuonTensor> tensors;
    for (const ParamView* p : params) tensors.push_back({.param = p});
    return muon_.planned_scratch_bytes(tensors);
  }
  double flops(const ParamView& p) const override { return muon_.flops(p); }
  double rate_factor() const override { return muon_.config().lr_multiplier; }
  /// Its update has a fixed spectral norm, unless match_rms lets that grow with sqrt(m).
  double width_factor(double m) const override {
    return muon_.config().scale == MuonScale::match_rms ? 1 / std::sqrt(m) : 1.0;
  }

 private:
  static std::vector<MuonTensor> list_of(std::span<const RuleTensor> tensors) {
    std::vector<MuonTensor> list;
    for (const RuleTensor& t : tensors)
      list.push_back({t.param, t.state.empty() ? StoredValues() : t.state[0], t.lr, t.weight_decay, t.index});
    return list;
  }

  ValueStorage storage_;
  Muon muon_;
};

template <class Rule, auto... args>
RuleMaker maker() {
  return [](const OptimizerConfig& config, int64_t total_steps) {
    return std::make_unique<Rule>(config, args..., total_steps);
  };
}

std::map<std::string, RegisteredOptimizer>& registered() {
  static std::map<std::string, RegisteredOptimizer> all{
      {"adamw", {RuleTakes::elements, maker<AdamRule, false>()}},
      {"ademamix", {RuleTakes::elements, maker<AdamRule, true>()}},
      {"muon", {RuleTakes::matrices, maker<MuonRule>()}}};
  return all;
}

}  // namespace

void UpdateRule::launch(const UpdateKernels&, std::span<const RuleTensor>, const DeviceStep&) const {
  INGOT_CHECK(false, "kernels that the rule refuses");
}

void register_optimizer(const std::string& name, RuleTakes takes, RuleMaker make) {
  if (name.empty() || name == "none") fail("an optimizer cannot be named '{}'", name);
  if (!registered().emplace(name, RegisteredOptimizer{takes, std::move(make)}).second)
    fail("an optimizer named '{}' exists already", name);
}

const RegisteredOptimizer* find_optimizer(const std::string& name) {
  const auto found = registered().find(name);
  return found == registered().end() ? nullptr : &found->second;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : registered()) names.push_back(name);
  return names;
}

}  // namespace ingot
