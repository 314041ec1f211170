// See optimizer.h.
#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "tensor/arena.h"

namespace ingot {
namespace {

constexpr OptimizerKind kOrder[] = {OptimizerKind::adamw, OptimizerKind::muon, OptimizerKind::ademamix};

/// Rounded to nearest, a bf16 moment that decays by less than half a unit never moves again.
void require_moves(const char* name, double beta, MomentStorage storage) {
  if (storage != MomentStorage::bf16 || 1 - beta >= 0x1p-8) return;
  throw Error(
      fmt::format(
          "{} = {} decays a moment by {:.2g} per step, which bf16 rounds away (half a unit is {:.2g})", name,
          beta, 1 - beta, 0x1p-8),
      "store the moment as bf16_stochastic or f32");
}

/// muP's factor on the learning rate of a matrix whose fan-in is m times the base model's. Adam's update has
/// a fixed size per element, so it must shrink by m; Muon's has a fixed spectral norm, unless match_rms lets
/// that grow with sqrt(m).
double width_factor(OptimizerKind kind, MuonScale scale, double m) {
  if (kind != OptimizerKind::muon) return 1 / m;
  return scale == MuonScale::match_rms ? 1 / std::sqrt(m) : 1.0;
}

}  // namespace

Optimizer::Optimizer(OptimizerConfig config, std::vector<ParamView> params, const OptimizerRun& run,
                     const RuleMaker& make, Backing backing)
    : config_(std::move(config)), params_(std::move(params)), stats_(params_.size()) {
  if (!(config_.weight_decay >= 0)) fail("weight_decay = {}, expected >= 0", config_.weight_decay);
  check_params();
  groups_ = resolve_groups(params_, config_.groups);
  for (size_t i = 0; i < params_.size(); ++i)
    groups_[i].lr_multiplier *=
        width_factor(groups_[i].optimizer, config_.muon.scale, params_[i].width_multiple);
  for (const OptimizerKind kind : kOrder) rules_[kind] = make(kind, config_, run.total_steps);
  check_moments();
  lay_out_state(run.seed, backing);
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

void Optimizer::check_moments() const {
  const auto used = [&](OptimizerKind kind) {
    return std::any_of(groups_.begin(), groups_.end(),
                       [&](const ParamGroup& g) { return g.optimizer == kind; });
  };
  const bool mixes = used(OptimizerKind::ademamix), adam = used(OptimizerKind::adamw) || mixes;
  if (adam) require_moves("beta1", config_.adamw.beta1, config_.first_moment);
  if (adam) require_moves("beta2", config_.adamw.beta2, config_.second_moment);
  if (mixes) require_moves("beta3", config_.ademamix.beta3, config_.first_moment);
  if (used(OptimizerKind::muon))
    require_moves("muon's momentum", config_.muon.momentum, config_.first_moment);
}

void Optimizer::lay_out_state(uint64_t seed, Backing backing) {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    state_.push_back({rules_.at(groups_[i].optimizer)->slots(params_[i]), {}});
    for (const StateSlot& slot : state_.back().slots) {
      offsets.push_back(bytes);
      bytes += round_up_block(slot.shape.numel() * size_of(dtype_of(slot.storage)));
    }
  }
  memory_ = Buffer(bytes, backing);
  auto offset = offsets.begin();
  for (size_t i = 0; i < state_.size(); ++i)
    for (const StateSlot& slot : state_[i].slots) {
      Moment& m =
          state_[i].moments.emplace_back(static_cast<std::byte*>(memory_.data()) + *offset++, slot.storage);
      m.seed = seed;
      m.first = params_[i].begin;
    }
}

std::vector<UpdateStat> Optimizer::step_rule(OptimizerKind kind, const StepArgs& args) {
  const double extra = kind == OptimizerKind::muon ? config_.muon.lr_multiplier : 1.0;
  std::vector<RuleTensor> tensors;
  for (size_t i = 0; i < params_.size(); ++i) {
    const ParamGroup& g = groups_[i];
    if (g.optimizer != kind) continue;
    for (size_t s = 0; s < state_[i].slots.size(); ++s)
      if (state_[i].moments[s].storage == MomentStorage::bf16_stochastic)
        state_[i].moments[s].stream =
            hash64(fmt::format("{}.{} {}", params_[i].name, state_[i].slots[s].name, steps_));
    tensors.push_back({&params_[i], state_[i].moments, args.lr * g.lr_multiplier * extra,
                       config_.weight_decay * g.decay_multiplier});
  }
  return rules_.at(kind)->step(tensors, steps_, args.grad_scale * args.clip_factor);
}

void Optimizer::step(const StepArgs& args) {
  INGOT_CHECK(std::isfinite(args.lr) && std::isfinite(args.grad_scale * args.clip_factor),
              "lr = {}, gradient factor = {}", args.lr, args.grad_scale * args.clip_factor);
  for (const OptimizerKind kind : kOrder) {
    const std::vector<UpdateStat> stats = step_rule(kind, args);
    auto next = stats.begin();
    for (size_t i = 0; i < params_.size(); ++i)
      if (groups_[i].optimizer == kind) stats_[i] = *next++;
  }
  ++steps_;
}

double Optimizer::update_flops() const {
  double flops = 0;
  for (size_t i = 0; i < params_.size(); ++i) flops += rules_.at(groups_[i].optimizer)->flops(params_[i]);
  return flops;
}

int64_t Optimizer::state_bytes() const {
  return memory_.bytes() + static_cast<int64_t>(sizeof(steps_));
}

void Optimizer::for_each_slot(
    const std::function<void(const ParamView&, const std::string&, const Tensor&)>& fn) {
  for (size_t i = 0; i < params_.size(); ++i)
    for (size_t s = 0; s < state_[i].slots.size(); ++s) {
      const StateSlot& slot = state_[i].slots[s];
      fn(params_[i], slot.name, Tensor(state_[i].moments[s].data, slot.shape, dtype_of(slot.storage)));
    }
}

void Optimizer::for_each_state(const std::function<void(const std::string&, const Tensor&)>& fn) {
  fn("optimizer.step", step_counter());
  for_each_slot(
      [&](const ParamView& p, const std::string& slot, const Tensor& t) { fn(p.name + "." + slot, t); });
}

}  // namespace ingot
