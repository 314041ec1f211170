// See config.h.
#include "optim/config.h"

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
  if (groups.others == OptimizerKind::muon) e.add("others", "muon needs matrices; give adamw or ademamix");
  for (size_t i = 0; i < groups.rules.size(); ++i)
    if (groups.rules[i].pattern.empty()) e.add(fmt::format("rules.{}.pattern", i), "must not be empty");
  if (!(weight_decay >= 0)) e.add("weight_decay", "must not be negative, found {}", weight_decay);
  if (!(clip >= 0)) e.add("clip", "must not be negative, found {}", clip);
}

}  // namespace ingot
