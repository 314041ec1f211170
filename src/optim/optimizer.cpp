// See optimizer.h.
#include "optim/optimizer.h"

#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"

namespace ingot {

Optimizer::Optimizer(OptimizerConfig config, std::vector<ParamView> params)
    : config_(std::move(config)), params_(std::move(params)), stats_(params_.size()), muon_(config_.muon) {
  validate(config_.adamw);
  if (!(config_.weight_decay >= 0)) fail("weight_decay = {}, expected >= 0", config_.weight_decay);
  if (!(config_.muon_lr_multiplier >= 0))
    fail("muon_lr_multiplier = {}, expected >= 0", config_.muon_lr_multiplier);
  check_params();
  groups_ = resolve_groups(params_, config_.groups);
  lay_out_state();
}

void Optimizer::check_params() const {
  std::set<std::string> names;
  for (const ParamView& p : params_) {
    if (!names.insert(p.name).second) fail("two parameters are named '{}'", p.name);
    INGOT_CHECK(p.numel() == 0 || (p.master && p.grad), "'{}' has no weights or no gradient", p.name);
    INGOT_CHECK(p.compute_dtype == DType::bf16 || p.compute_dtype == DType::f32, "'{}' computes in {}",
                p.name, name_of(p.compute_dtype));
    INGOT_CHECK(p.matrices >= 0 && (p.matrices == 1 || p.is_matrix()), "'{}' {} with {} matrices", p.name,
                p.shape.str(), p.matrices);
    const int64_t rows = std::accumulate(p.row_splits.begin(), p.row_splits.end(), int64_t{0});
    INGOT_CHECK(p.row_splits.empty() || rows == p.matrix_rows(), "'{}' {}: row blocks add up to {}", p.name,
                p.shape.str(), rows);
  }
}

void Optimizer::lay_out_state() {
  std::vector<int64_t> adamw_counts, muon_counts;
  for (size_t i = 0; i < params_.size(); ++i)
    (groups_[i].optimizer == OptimizerKind::muon ? muon_counts : adamw_counts).push_back(params_[i].numel());
  const std::vector<int64_t> adamw = flat_offsets(adamw_counts), muon = flat_offsets(muon_counts);
  auto next_adamw = adamw.begin(), next_muon = muon.begin();
  for (const ParamGroup& g : groups_)
    offset_.push_back(g.optimizer == OptimizerKind::muon ? *next_muon++ : *next_adamw++);
  exp_avg_ = FloatBuffer(adamw.back());
  exp_avg_sq_ = FloatBuffer(adamw.back());
  if (needs_momentum(config_.muon)) momentum_ = FloatBuffer(muon.back());
}

void Optimizer::step(const StepArgs& args) {
  const double scale = args.grad_scale * args.clip_factor;
  INGOT_CHECK(std::isfinite(args.lr) && std::isfinite(scale), "lr = {}, gradient factor = {}", args.lr,
              scale);
  std::vector<AdamWTensor> adamw;
  std::vector<MuonTensor> muon;
  for (size_t i = 0; i < params_.size(); ++i) {
    const bool is_muon = groups_[i].optimizer == OptimizerKind::muon;
    const double lr = args.lr * groups_[i].lr_multiplier * (is_muon ? config_.muon_lr_multiplier : 1.0);
    const double decay = groups_[i].decay ? config_.weight_decay : 0.0;
    if (is_muon)
      muon.push_back({&params_[i], momentum_.data() ? momentum_.data() + offset_[i] : nullptr, lr, decay});
    else
      adamw.push_back(
          {&params_[i], exp_avg_.data() + offset_[i], exp_avg_sq_.data() + offset_[i], lr, decay});
  }
  const std::vector<UpdateStat> adamw_stats = adamw_step(adamw, config_.adamw, steps_ + 1, scale);
  const std::vector<UpdateStat> muon_stats = muon_.step(muon, steps_, scale);
  auto next_adamw = adamw_stats.begin(), next_muon = muon_stats.begin();
  for (size_t i = 0; i < params_.size(); ++i)
    stats_[i] = groups_[i].optimizer == OptimizerKind::muon ? *next_muon++ : *next_adamw++;
  ++steps_;
}

double Optimizer::update_flops() const {
  double flops = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (groups_[i].optimizer != OptimizerKind::muon) continue;
    const ParamView& p = params_[i];
    const std::vector<int64_t> whole{p.matrix_rows()};
    for (const int64_t rows : p.row_splits.empty() ? whole : p.row_splits)
      flops += static_cast<double>(p.matrices) *
               newton_schulz_flops(rows, p.matrix_cols(), config_.muon.newton_schulz.steps);
  }
  return flops;
}

int64_t Optimizer::state_bytes() const {
  return (exp_avg_.size() + exp_avg_sq_.size() + momentum_.size()) * static_cast<int64_t>(sizeof(float)) +
         static_cast<int64_t>(sizeof(steps_));
}

void Optimizer::for_each_state(const std::function<void(const std::string&, const Tensor&)>& fn) {
  fn("optimizer.step", Tensor::of(&steps_, Shape{}));
  for (size_t i = 0; i < params_.size(); ++i) {
    const ParamView& p = params_[i];
    if (groups_[i].optimizer == OptimizerKind::adamw) {
      fn(p.name + ".exp_avg", Tensor::of(exp_avg_.data() + offset_[i], p.shape));
      fn(p.name + ".exp_avg_sq", Tensor::of(exp_avg_sq_.data() + offset_[i], p.shape));
    } else if (momentum_.data()) {
      fn(p.name + ".momentum", Tensor::of(momentum_.data() + offset_[i], p.shape));
    }
  }
}

}  // namespace ingot
