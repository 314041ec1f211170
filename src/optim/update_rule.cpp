// See update_rule.h: AdamW, AdEMAMix and Muon as rules.
#include "optim/update_rule.h"

#include <algorithm>

#include "base/error.h"
#include "optim/optimizer.h"

namespace ingot {
namespace {

class AdamRule final : public UpdateRule {
 public:
  AdamRule(const OptimizerConfig& config, bool mixing, int64_t total_steps)
      : config_(config), mixing_(mixing) {
    if (config_.ademamix.warmup == 0) config_.ademamix.warmup = total_steps;
    validate(config.adamw);
    if (mixing) validate(config.ademamix);
  }
  std::vector<StateSlot> slots(const ParamView& p) const override {
    std::vector<StateSlot> slots = {{"exp_avg", p.part_shape(), config_.first_moment},
                                    {"exp_avg_sq", p.part_shape(), config_.second_moment}};
    if (mixing_) slots.push_back({"exp_avg_slow", p.part_shape(), config_.first_moment});
    return slots;
  }
  std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t step,
                               double grad_scale) override {
    std::vector<AdamWTensor> list;
    for (const RuleTensor& t : tensors)
      list.push_back(
          {t.param, t.state[0], t.state[1], t.lr, t.weight_decay, mixing_ ? t.state[2] : Moment()});
    return adamw_step(list, config_.adamw, step + 1, grad_scale, config_.ademamix);
  }

 private:
  OptimizerConfig config_;
  bool mixing_;
};

class MuonRule final : public UpdateRule {
 public:
  MuonRule(const OptimizerConfig& config, int64_t total_steps)
      : storage_(config.first_moment), muon_(config.muon, total_steps) {}
  std::vector<StateSlot> slots(const ParamView& p) const override {
    if (!needs_momentum(muon_.config())) return {};
    return {{"momentum", p.part_shape(), storage_}};
  }
  std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t step,
                               double grad_scale) override {
    std::vector<MuonTensor> list;
    for (const RuleTensor& t : tensors)
      list.push_back({t.param, t.state.empty() ? Moment() : t.state[0], t.lr, t.weight_decay});
    return muon_.step(list, step, grad_scale);
  }
  double flops(const ParamView& p) const override {
    double flops = 0;
    const std::vector<int64_t> whole{p.matrix_rows()};
    for (const int64_t rows : p.row_splits.empty() ? whole : p.row_splits)
      flops += static_cast<double>(p.matrices) * newton_schulz_flops(rows, p.matrix_cols(),
                                                                     muon_.config().newton_schulz.steps, true,
                                                                     muon_.config().newton_schulz.precision);
    const double share =
        static_cast<double>(p.numel()) / static_cast<double>(std::max<int64_t>(1, p.shape.numel()));
    return flops * share;
  }

 private:
  MomentStorage storage_;
  Muon muon_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_rule(OptimizerKind kind, const OptimizerConfig& config,
                                      int64_t total_steps) {
  if (kind == OptimizerKind::muon) return std::make_unique<MuonRule>(config, total_steps);
  return std::make_unique<AdamRule>(config, kind == OptimizerKind::ademamix, total_steps);
}

}  // namespace ingot
