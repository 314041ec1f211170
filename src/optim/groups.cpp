// See groups.h.
#include "optim/groups.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/glob.h"

namespace ingot {
namespace {

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return glob_match(p, name); });
}

void require_match(const std::string& pattern, std::span<const ParamView> params, std::string_view where) {
  const bool found = std::any_of(params.begin(), params.end(),
                                 [&](const ParamView& p) { return glob_match(pattern, p.name); });
  if (found) return;
  std::vector<std::string> names;
  for (const ParamView& p : params) names.push_back(p.name);
  throw Error(
      fmt::format("the pattern '{}' in {} matches none of the {} parameters", pattern, where, params.size()),
      "nearest names: " + nearest_to_pattern(pattern, names));
}

/// Patterns that somebody wrote must match; a default may be for another model family.
void require_matches(const std::vector<std::string>& patterns, const std::vector<std::string>& defaults,
                     std::span<const ParamView> params, std::string_view where) {
  for (const std::string& p : patterns)
    if (std::find(defaults.begin(), defaults.end(), p) == defaults.end()) require_match(p, params, where);
}

void apply_rule(const GroupRule& rule, const ParamView& param, ParamGroup& group) {
  if (!glob_match(rule.pattern, param.name)) return;
  if (rule.optimizer) group.optimizer = *rule.optimizer;
  if (rule.lr_multiplier) group.lr_multiplier = *rule.lr_multiplier;
  if (rule.decay_multiplier) group.decay_multiplier = *rule.decay_multiplier;
  if (rule.optimizer && require_optimizer(*rule.optimizer).needs_matrices() && !param.is_matrix())
    throw Error(
        fmt::format("the rule '{}' gives '{}' {} to {}, expected a matrix [r, c] or a stack of matrices",
                    rule.pattern, param.name, param.shape.str(), *rule.optimizer),
        "narrow the pattern, or use adamw");
}

std::string shape_text(const ParamView& p, const ParamGroup& group) {
  std::string text = p.shape.str();
  if (!require_optimizer(group.optimizer).needs_matrices() || p.row_splits.empty()) return text;
  text += " rows";
  for (size_t i = 0; i < p.row_splits.size(); ++i)
    text += fmt::format("{}{}", i ? "|" : " ", p.row_splits[i]);
  return text;
}

}  // namespace

std::vector<std::string> GroupConfig::default_not_muon() {
  return {"*embed*", "*wte*", "*wpe*", "*lm_head*", "*conv*"};
}
std::vector<std::string> GroupConfig::default_no_decay() {
  return {"*norm*", "*ln_*", "*bias*", "*scale*", "*temp*", "*embed*", "*wte*", "*wpe*"};
}

const RegisteredOptimizer& require_optimizer(const std::string& name) {
  if (const RegisteredOptimizer* found = find_optimizer(name)) return *found;
  throw Error(fmt::format("no optimizer '{}' is registered", name),
              fmt::format("there are {}; others are added by programs that use the library",
                          fmt::join(optimizer_names(), ", ")));
}

std::vector<ParamGroup> resolve_groups(std::span<const ParamView> params, const GroupConfig& config) {
  require_optimizer(config.matrices);
  if (require_optimizer(config.others).needs_matrices())
    throw Error(fmt::format("{} cannot update all parameters: norms, biases and embeddings are no matrices",
                            config.others),
                "give others = adamw or ademamix");
  require_matches(config.not_muon, GroupConfig::default_not_muon(), params, "not_muon");
  require_matches(config.no_decay, GroupConfig::default_no_decay(), params, "no_decay");
  for (const GroupRule& rule : config.rules) {
    require_match(rule.pattern, params, "rules");
    if (rule.lr_multiplier && !(*rule.lr_multiplier >= 0))
      fail("the rule '{}' has lr_multiplier = {}, expected >= 0", rule.pattern, *rule.lr_multiplier);
    if (rule.decay_multiplier && !(*rule.decay_multiplier >= 0))
      fail("the rule '{}' has decay_multiplier = {}, expected >= 0", rule.pattern, *rule.decay_multiplier);
  }
  std::vector<ParamGroup> groups;
  for (const ParamView& p : params) {
    ParamGroup group;
    group.optimizer = config.others;
    if (p.is_matrix() && !matches_any(config.not_muon, p.name)) group.optimizer = config.matrices;
    if (matches_any(config.no_decay, p.name)) group.decay_multiplier = 0;
    for (const GroupRule& rule : config.rules) apply_rule(rule, p, group);
    groups.push_back(group);
  }
  return groups;
}

std::string describe_groups(std::span<const ParamView> params, std::span<const ParamGroup> groups) {
  INGOT_CHECK(params.size() == groups.size());
  size_t names = 4, shapes = 5;
  for (size_t i = 0; i < params.size(); ++i) {
    names = std::max(names, params[i].name.size());
    shapes = std::max(shapes, shape_text(params[i], groups[i]).size());
  }
  std::string text =
      fmt::format("{:<{}}  {:<{}}  optimizer  lr x   decay x\n", "name", names, "shape", shapes);
  std::map<std::string, int64_t> count;
  for (const std::string& name : optimizer_names()) count[name] = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    text += fmt::format("{:<{}}  {:<{}}  {:<9}  {:<5g}  {:g}\n", params[i].name, names,
                        shape_text(params[i], groups[i]), shapes, groups[i].optimizer,
                        groups[i].lr_multiplier, groups[i].decay_multiplier);
    count[groups[i].optimizer] += params[i].numel();
  }
  const char* unit = " parameters";
  for (const auto& [name, n] : count) text += fmt::format("{}: {}{}, ", name, n, std::exchange(unit, ""));
  return text.replace(text.size() - 2, 2, "\n");
}

}  // namespace ingot
