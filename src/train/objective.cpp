// See objective.h.
#include "train/objective.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace ingot {
namespace {

std::map<std::string, std::shared_ptr<const Objective>>& objectives() {
  static std::map<std::string, std::shared_ptr<const Objective>> all = {
      {"cross_entropy", std::make_shared<const Objective>(Objective{[](const ObjectiveInputs& i) {
                                                                      return cross_entropy(
                                                                          i.logprob, i.lse, i.targets,
                                                                          i.z_coefficient, i.columns.weight);
                                                                    },
                                                                    true})}};
  return all;
}

}  // namespace

void register_objective(const std::string& name, ObjectiveFunction evaluate) {
  if (!objectives().emplace(name, std::make_shared<const Objective>(Objective{std::move(evaluate)})).second)
    fail("an objective named '{}' exists already", name);
}

std::shared_ptr<const Objective> find_objective(const std::string& name) {
  const auto found = objectives().find(name);
  return found == objectives().end() ? nullptr : found->second;
}

std::string objective_names() {
  std::string names;
  for (const auto& [name, objective] : objectives()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

ObjectiveResult cross_entropy(std::span<const float> logprob, std::span<const float> lse,
                              std::span<const int32_t> targets, double z_coefficient,
                              std::span<const float> weight) {
  INGOT_CHECK(logprob.size() == targets.size() && lse.size() == targets.size());
  INGOT_CHECK(weight.empty() || weight.size() == targets.size());
  ObjectiveResult r;
  r.d_logprob.assign(targets.size(), 0);
  if (z_coefficient != 0) r.d_lse.assign(targets.size(), 0);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    const double w = weight.empty() ? 1.0 : weight[t];
    r.loss += w * (-static_cast<double>(logprob[t]) + z_coefficient * lse[t] * lse[t]);
    r.d_logprob[t] = static_cast<float>(-w);
    if (z_coefficient != 0) r.d_lse[t] = static_cast<float>(w * (2 * z_coefficient * lse[t]));
  }
  return r;
}

ObjectiveResult dpo(std::span<const float> logprob, std::span<const float> reference_logprob,
                    std::span<const int32_t> sequence, double beta) {
  INGOT_CHECK(logprob.size() == sequence.size() && reference_logprob.size() == sequence.size());
  int32_t last = -1;
  for (const int32_t s : sequence) last = std::max(last, s);
  std::vector<double> margin(static_cast<size_t>((last + 2) / 2) * 2, 0.0);  // per sequence
  for (size_t t = 0; t < sequence.size(); ++t)
    if (sequence[t] >= 0)
      margin[static_cast<size_t>(sequence[t])] += static_cast<double>(logprob[t]) - reference_logprob[t];
  ObjectiveResult r;
  std::vector<double> slope(margin.size(), 0.0);  // d loss / d logprob for every token of a sequence
  for (size_t pair = 0; pair < margin.size(); pair += 2) {
    const double x = beta * (margin[pair] - margin[pair + 1]);
    r.loss += x > 0 ? std::log1p(std::exp(-x)) : -x + std::log1p(std::exp(x));
    const double sigmoid_of_minus = 1 / (1 + std::exp(x));
    slope[pair] = -beta * sigmoid_of_minus;
    slope[pair + 1] = beta * sigmoid_of_minus;
  }
  r.d_logprob.assign(sequence.size(), 0);
  for (size_t t = 0; t < sequence.size(); ++t)
    if (sequence[t] >= 0) r.d_logprob[t] = static_cast<float>(slope[static_cast<size_t>(sequence[t])]);
  return r;
}

ObjectiveResult distillation(std::span<const float> logprob, std::span<const float> kl,
                             std::span<const int32_t> targets, double weight) {
  INGOT_CHECK(logprob.size() == targets.size() && kl.size() == targets.size());
  ObjectiveResult r;
  r.d_logprob.assign(targets.size(), 0);
  r.d_kl.assign(targets.size(), 0);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    r.loss += weight * kl[t] - (1 - weight) * logprob[t];
    r.d_kl[t] = static_cast<float>(weight);
    r.d_logprob[t] = static_cast<float>(weight - 1);
  }
  return r;
}

}  // namespace ingot
