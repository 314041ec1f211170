// See init.h.
#include "nn/init.h"

#include <cmath>

#include "base/glob.h"
#include "nn/config.h"

namespace ingot {
namespace {

bool takes_rules(const ParameterSpec& spec) {
  return spec.init.kind != Init::Kind::constant;
}

Init init_of(const InitRule& rule, const ModelConfig& model, const ParameterSpec& spec) {
  const double scale = rule.residual_scaled ? 1 / std::sqrt(2.0 * static_cast<double>(model.layers)) : 1.0;
  const double in = std::sqrt(static_cast<double>(spec.shape[-1]));
  switch (rule.kind) {
    case InitChoice::normal:
      return Init::normal(scale * rule.std.value_or(model.init_std));
    case InitChoice::truncated:
      return Init::truncated(scale * rule.std.value_or(model.init_std));
    case InitChoice::uniform:
      return Init::uniform(scale * std::sqrt(3.0) * rule.gain.value_or(0.5) / in);
    case InitChoice::fan_in:
      return Init::normal(scale * rule.gain.value_or(1) / in);
    case InitChoice::zero:
      return Init::normal(0);
  }
  return spec.init;
}

/// Follows the fan-in by itself already.
bool by_fan_in(const InitRule* rule, const ModelConfig& model, const ParameterSpec& spec) {
  if (rule != nullptr) return rule->kind == InitChoice::uniform || rule->kind == InitChoice::fan_in;
  return spec.role == ParamRole::router && model.moe.router_init == RouterInit::fan_in;
}

void apply_mup(const ModelConfig& model, const InitRule* rule, ParameterTable& table, int i) {
  const ParameterSpec& spec = table[i];
  const bool output = spec.role == ParamRole::head || spec.role == ParamRole::router;
  const bool hidden = spec.role == ParamRole::matrix || spec.role == ParamRole::expert;
  if (!hidden && !(output && spec.shape[-1] == model.width)) return;
  const double m = static_cast<double>(model.width) / static_cast<double>(model.mup_base_width);
  Init init = spec.init;
  if (!by_fan_in(rule, model, spec)) init.value /= std::sqrt(m);
  if (output) init.value /= std::sqrt(m);
  table.set_init(i, init);
  table.set_width_multiple(i, m);
}

}  // namespace

void validate_init(const ModelConfig& m, ConfigErrors& e) {
  for (size_t i = 0; i < m.init.size(); ++i) {
    const InitRule& r = m.init[i];
    const std::string at = fmt::format("init.{}.", i);
    const bool spread = r.kind == InitChoice::normal || r.kind == InitChoice::truncated;
    const bool gain = r.kind == InitChoice::uniform || r.kind == InitChoice::fan_in;
    if (r.pattern.empty()) e.add(at + "pattern", "must not be empty");
    if (r.std && !spread) e.add(at + "std", "{} has no std{}", name_of(r.kind), gain ? "; use gain" : "");
    if (r.gain && !gain) e.add(at + "gain", "{} has no gain{}", name_of(r.kind), spread ? "; use std" : "");
  }
  if (m.mup_base_width > 0 && m.tied)
    e.add("mup_base_width", "muP needs another scale for the head than for the embedding; set tied = false");
}

void apply_init(const ModelConfig& model, ParameterTable& table) {
  std::vector<const InitRule*> chosen(static_cast<size_t>(table.size()), nullptr);
  for (const InitRule& rule : model.init) {
    bool found = false;
    std::vector<std::string> names;
    for (int i = 0; i < table.size(); ++i) {
      if (!takes_rules(table[i])) continue;
      names.push_back(table[i].name);
      if (!glob_match(rule.pattern, table[i].name)) continue;
      chosen[static_cast<size_t>(i)] = &rule;
      found = true;
    }
    if (!found)
      throw Error(fmt::format("the pattern '{}' in model.init matches no matrix", rule.pattern),
                  "nearest names: " + nearest_to_pattern(rule.pattern, names));
  }
  for (int i = 0; i < table.size(); ++i) {
    const InitRule* rule = chosen[static_cast<size_t>(i)];
    if (rule != nullptr) table.set_init(i, init_of(*rule, model, table[i]));
    if (model.mup_base_width > 0) apply_mup(model, rule, table, i);
  }
}

}  // namespace ingot
