// See optimizer.h.
#include "optim/optimizer.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "optim/update_kernels.h"
#include "tensor/arena.h"

namespace ingot {
Optimizer::Optimizer(OptimizerConfig config, std::vector<ParamView> params, const OptimizerRun& run,
                     Backing backing, DeviceKind device)
    : config_(std::move(config)),
      total_steps_(run.total_steps),
      place_{std::move(params), {}},
      stats_(place_.params.size()) {
  if (!(config_.weight_decay >= 0)) fail("weight_decay = {}, expected >= 0", config_.weight_decay);
  check_params();
  groups_ = resolve_groups(place_.params, config_.groups);
  check_whole();
  for (size_t i = 0; i < place_.params.size(); ++i) {
    std::unique_ptr<UpdateRule>& rule = rules_[groups_[i].optimizer];
    if (!rule) rule = require_optimizer(groups_[i].optimizer).make(config_, run.total_steps);
    groups_[i].lr_multiplier *= rule->width_factor(place_.params[i].width_multiple);
    place_.params[i].master.seed = run.seed;
    place_.params[i].master.first = place_.params[i].begin;
  }
  lay_out_state(run.seed, backing, device);
}

/// A rule that takes whole matrices has no way to the other parts of one.
void Optimizer::check_whole() const {
  for (size_t i = 0; i < place_.params.size(); ++i) {
    const ParamView& p = place_.params[i];
    const bool part = (p.numel() > 0 && p.numel() < p.shape.numel()) || p.sharding.group != nullptr;
    if (part && require_optimizer(groups_[i].optimizer).takes == RuleTakes::whole_matrices)
      throw Error(fmt::format("optimizer {} takes whole matrices, but this layout divides '{}' among ranks",
                              groups_[i].optimizer, p.name),
                  "set parallel.whole_matrices = true, or parallel.shard = \"none\" and parallel.tensor = 1");
  }
}

void Optimizer::check_params() const {
  std::set<std::string> names;
  for (const ParamView& p : place_.params) {
    if (!names.insert(p.name).second) fail("two parameters are named '{}'", p.name);
    INGOT_CHECK(p.numel() == 0 || (p.master.data && p.grad.data), "'{}' has no weights or no gradient",
                p.name);
    INGOT_CHECK(p.compute_dtype == DType::bf16 || p.compute_dtype == DType::f32, "'{}' computes in {}",
                p.name, name_of(p.compute_dtype));
    INGOT_CHECK(p.matrices >= 0 && (p.matrices == 1 || p.is_matrix()), "'{}' {} with {} matrices", p.name,
                p.shape.str(), p.matrices);
    const int64_t rows = std::accumulate(p.row_splits.begin(), p.row_splits.end(), int64_t{0});
    INGOT_CHECK(p.row_splits.empty() || rows == p.matrix_rows(), "'{}' {}: row blocks add up to {}", p.name,
                p.shape.str(), rows);
  }
}

void Optimizer::lay_out_state(uint64_t seed, Backing backing, DeviceKind device) {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  for (size_t i = 0; i < place_.params.size(); ++i) {
    place_.state.push_back({rules_.at(groups_[i].optimizer)->slots(place_.params[i]), {}});
    for (const StateSlot& slot : place_.state.back().slots) {
      offsets.push_back(bytes);
      bytes += round_up_block(slot.shape.numel() * size_of(dtype_of(slot.storage)));
    }
  }
  memory_ = Buffer(bytes, backing, device, "optimizer state");
  auto offset = offsets.begin();
  for (size_t i = 0; i < place_.state.size(); ++i)
    for (const StateSlot& slot : place_.state[i].slots) {
      StoredValues& m = place_.state[i].moments.emplace_back(
          static_cast<std::byte*>(memory_.data()) + *offset++, slot.storage);
      m.seed = seed;
      m.first = place_.params[i].begin;
    }
}

void Optimizer::change(const OptimizerConfig& config) {
  std::map<std::string, std::unique_ptr<UpdateRule>> rules;
  for (const auto& [name, rule] : rules_) rules[name] = require_optimizer(name).make(config, total_steps_);
  for (size_t i = 0; i < place_.params.size(); ++i)
    if (rules.at(groups_[i].optimizer)->slots(place_.params[i]).size() > place_.state[i].slots.size())
      throw Error(fmt::format("'{}' has no state for the momentum that {} is to have from now on",
                              place_.params[i].name, groups_[i].optimizer),
                  "give [optimizer] a momentum, and 0 to the phases that want none");
  rules_ = std::move(rules);
  config_.weight_decay = config.weight_decay;
  config_.adamw = config.adamw;
  config_.muon = config.muon;
  config_.clip = config.clip;
  ++config_version_;
}

void Optimizer::reset() {
  if (memory_.bytes() > 0) std::memset(memory_.data(), 0, static_cast<size_t>(memory_.bytes()));
  steps_ = 0;
}

std::vector<RuleTensor> Optimizer::tensors_of(const std::string& rule, double lr, Place& place,
                                              int64_t step) const {
  const auto stream = [&](const ParamView& p, const std::string& values) {
    return hash64(fmt::format("{}.{} {}", p.name, values, step));
  };
  const std::vector<double> rates = this->rates(lr);
  std::vector<RuleTensor> tensors;
  for (size_t i = 0; i < place.params.size(); ++i) {
    const ParamGroup& g = groups_[i];
    if (g.optimizer != rule) continue;
    ParamView& p = place.params[i];
    State& state = place.state[i];
    for (size_t s = 0; s < state.slots.size(); ++s)
      if (state.moments[s].storage == ValueStorage::bf16_stochastic)
        state.moments[s].stream = stream(p, state.slots[s].name);
    if (p.master.storage == ValueStorage::bf16_stochastic) p.master.stream = stream(p, "master");
    tensors.push_back(
        {&p, state.moments, rates[i], config_.weight_decay * g.decay_multiplier, static_cast<int64_t>(i)});
  }
  return tensors;
}

std::vector<double> Optimizer::rates(double lr) const {
  std::vector<double> rates;
  for (const ParamGroup& g : groups_)
    rates.push_back(lr * g.lr_multiplier * rules_.at(g.optimizer)->rate_factor());
  return rates;
}

std::vector<double> Optimizer::numbers(int64_t step) const {
  std::vector<double> all;
  for (const auto& [name, rule] : rules_) std::ranges::copy(rule->numbers(step), std::back_inserter(all));
  return all;
}

void Optimizer::step_rule(const std::string& name, const StepArgs& args, Place& place, int64_t step,
                          UpdateStat* stats) {
  const std::vector<RuleTensor> tensors = tensors_of(name, args.lr, place, step);
  const std::vector<UpdateStat> made =
      rules_.at(name)->step(tensors, step, args.grad_scale * args.clip_factor);
  for (size_t i = 0; i < tensors.size(); ++i) stats[tensors[i].index] = made[i];
}

Optimizer::RuleKernels Optimizer::kernels_on(DeviceKind device) const {
  RuleKernels all;
  for (const auto& [name, rule] : rules_)
    all[name] = select_update_kernels(
        device, "the update by " + name, [&, &name = name, &rule = rule](const UpdateKernels& kernels) {
          const char* refused = nullptr;
          for (size_t i = 0; i < place_.params.size() && refused == nullptr; ++i) {
            if (groups_[i].optimizer != name) continue;
            refused = rule->refuse_kernels(place_.params[i], device);
            if (refused == nullptr) refused = kernels.refuse(place_.params[i], place_.state[i].moments);
          }
          return refused;
        });
  return all;
}

void Optimizer::launch_at(Place& place, const RuleKernels& kernels, DeviceStep step) {
  for (const auto& [name, rule] : rules_) {
    if (const UpdateKernels* const by = kernels.at(name); by != nullptr)
      rule->launch(*by, tensors_of(name, 0, place, 0), step);
    else if (step.decision->made != 0)
      step_rule(name, {.lr = step.scalars->lr, .grad_scale = step.decision->factor}, place,
                static_cast<int64_t>(step.scalars->step), step.stats);
    step.numbers += rule->numbers(0).size();
  }
}

void Optimizer::step(const StepArgs& args) {
  INGOT_CHECK(std::isfinite(args.lr) && std::isfinite(args.grad_scale * args.clip_factor),
              "lr = {}, gradient factor = {}", args.lr, args.grad_scale * args.clip_factor);
  memory_.data();  // brings the state back from a device
  stats_.resize(place_.params.size());
  for (const auto& [name, rule] : rules_) step_rule(name, args, place_, steps_, stats_.data());
  ++steps_;
}

Optimizer::Place Optimizer::place_on_device(std::span<const ParamView> params) const {
  INGOT_CHECK(params.size() == place_.params.size());
  Place there = place_;
  auto* const to = static_cast<std::byte*>(memory_.on_device());
  const std::byte* from = nullptr;  // the first state, where the host's memory begins
  for (const State& state : place_.state)
    if (from == nullptr && !state.moments.empty()) from = static_cast<std::byte*>(state.moments[0].data);
  for (size_t i = 0; i < params.size(); ++i) {
    ParamView& p = there.params[i];
    INGOT_CHECK(p.name == params[i].name && p.compute == nullptr, "'{}'", p.name);
    p.master.data = params[i].master.data;
    p.grad.data = params[i].grad.data;
    for (StoredValues& m : there.state[i].moments) m.data = to + (static_cast<std::byte*>(m.data) - from);
  }
  return there;
}

double Optimizer::update_flops(size_t param) const {
  return rules_.at(groups_[param].optimizer)->flops(place_.params[param]);
}

int64_t Optimizer::state_bytes() const {
  return memory_.bytes() + static_cast<int64_t>(sizeof(steps_));
}

int64_t Optimizer::scratch_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, rule] : rules_) {
    std::vector<const ParamView*> params;
    for (size_t i = 0; i < place_.params.size(); ++i)
      if (groups_[i].optimizer == name) params.push_back(&place_.params[i]);
    bytes += rule->scratch_bytes(params);
  }
  return bytes;
}

void Optimizer::for_each_slot(
    const std::function<void(const ParamView&, const std::string&, const Tensor&)>& fn) {
  memory_.data();  // brings it back from a device
  for (size_t i = 0; i < place_.params.size(); ++i)
    for (size_t s = 0; s < place_.state[i].slots.size(); ++s) {
      const StateSlot& slot = place_.state[i].slots[s];
      fn(place_.params[i], slot.name,
         Tensor(place_.state[i].moments[s].data, slot.shape, dtype_of(slot.storage)));
    }
}

void Optimizer::for_each_state(const std::function<void(const std::string&, const Tensor&)>& fn) {
  fn("optimizer.step", step_counter());
  for_each_slot(
      [&](const ParamView& p, const std::string& slot, const Tensor& t) { fn(p.name + "." + slot, t); });
}

}  // namespace ingot
