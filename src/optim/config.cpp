// See config.h.
#include "optim/config.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace ingot {
namespace {

template <class Section>
void collect(const char* key, const Section& section, ConfigErrors& e) {
  try {
    validate(section);
  } catch (const Error& error) {
    e.add(key, "{}", error.what());
  }
}

}  // namespace

void OptimizerConfig::validate(ConfigErrors& e) const {
  collect("adamw", adamw, e);
  collect("ademamix", ademamix, e);
  collect("muon", muon, e);
  collect("qk_clip", qk_clip, e);
  const auto known = [&](const std::string& key, const std::string& name) {
    if (find_optimizer(name) == nullptr)
      e.add(key, "no optimizer '{}' is registered; there are {}", name, fmt::join(optimizer_names(), ", "));
    return find_optimizer(name);
  };
  known("matrices", groups.matrices);
  if (const auto* others = known("others", groups.others); others != nullptr && others->needs_matrices())
    e.add("others", "{} needs matrices; give adamw or ademamix", groups.others);
  for (size_t i = 0; i < groups.rules.size(); ++i) {
    const std::string rule = fmt::format("rules.{}.", i);
    if (groups.rules[i].pattern.empty()) e.add(rule + "pattern", "must not be empty");
    if (groups.rules[i].optimizer) known(rule + "optimizer", *groups.rules[i].optimizer);
  }
  if (master == ValueStorage::bf16)
    e.add("master",
          "rounded to nearest, a weight stands still where its update is below half a unit of bf16; "
          "use bf16_stochastic, or f32");
  if (gradient == ValueStorage::bf16_stochastic)
    e.add("gradient", "gradients are rounded to nearest; use bf16, or f32");
  if (master != ValueStorage::f32 && qk_clip.threshold > 0)
    e.add("master", "qk_clip scales masters in f32; use master = \"f32\", or qk_clip = 0");
}

}  // namespace ingot
