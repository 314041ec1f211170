// See rope_stretch.h.
#include "exchange/rope_stretch.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/log.h"
#include "checkpoint/model_state.h"

namespace ingot {
namespace {

constexpr int64_t kLongest = int64_t{1} << 30;  // positions are i32

RopeScalingConfig parse_option(const std::string& option) {
  RopeScalingConfig s;
  const size_t colon = option.find(':');
  s.kind = enum_from<RopeScalingKind>(option.substr(0, colon), "--rope-scaling");
  if (s.kind == RopeScalingKind::none && colon == option.npos) return s;
  const std::string factor = colon == option.npos ? "" : option.substr(colon + 1);
  const auto [end, error] = std::from_chars(factor.data(), factor.data() + factor.size(), s.factor);
  const bool number = error == std::errc{} && end == factor.data() + factor.size();
  if (s.kind == RopeScalingKind::none || !number || !(s.factor > 1 && s.factor <= 1e6))
    throw Error(
        fmt::format("--rope-scaling {}: expected a kind and a factor above 1, as in yarn:4, or none", option),
        "4 stands for a context 4 times as long");
  return s;
}

bool rotates(const ModelConfig& m) {
  for (int64_t layer = 0; layer < m.layers; ++layer)
    if (m.rotary_of(layer).dims > 0) return true;
  return false;
}

/// The longest sequence of the run that trained the model; its context where that is not known.
int64_t trained_context(const StoredModel& m) {
  if (m.imported) return m.config.context;
  const ConfigNode recipe = parse_toml(config_of_blob(m.reader, "recipe"), m.reader.path() + ": recipe");
  const ConfigNode* phases = recipe.find("phases");
  int64_t longest = 0;
  if (phases != nullptr)
    for (const ConfigNode& phase : phases->items)
      if (const ConfigNode* n = phase.find("sequence")) longest = std::max(longest, n->integer);
  return longest > 0 ? longest : m.config.context;
}

}  // namespace

void stretch_rope(StoredModel& m, const std::string& option) {
  RopeScalingConfig s = parse_option(option);
  ModelConfig& config = m.config;
  const RopeScalingConfig& before = config.rope_scaling;
  if (!rotates(config))
    throw Error(fmt::format("'{}' has no rotary positions that --rope-scaling could stretch (position = "
                            "\"{}\")",
                            m.reader.path(), name_of(config.position)),
                "leave the option out; its context stays what it is");
  if (s.kind == RopeScalingKind::none) {
    config.rope_scaling = s;
    return;
  }
  if (before.kind != RopeScalingKind::none && before.kind != s.kind)
    throw Error(fmt::format("'{}' has rope_scaling.kind = \"{}\", which --rope-scaling {} would replace",
                            m.reader.path(), name_of(before.kind), option),
                "a model keeps the kind it was trained with: give that one, with another factor");
  const int64_t trained = before.original_context > 0
                              ? before.original_context
                              : std::llround(static_cast<double>(trained_context(m)) / before.factor);
  const double longer = std::floor(s.factor * static_cast<double>(trained));
  if (longer > static_cast<double>(kLongest))
    throw Error(fmt::format("--rope-scaling {}: {} tokens become {:.4g}, more than {}", option, trained,
                            longer, kLongest),
                "give a smaller factor");
  config.context = std::max(config.context, static_cast<int64_t>(longer));
  if (before.kind == RopeScalingKind::none) {
    s.original_context = s.kind == RopeScalingKind::linear ? 0 : trained;
    config.rope_scaling = s;
  } else {
    config.rope_scaling.factor = s.factor;  // what is not asked for stays as the model has it
  }
  const ConfigNode root;
  ConfigErrors errors(root);
  check_config(config, errors);
  errors.throw_if_any();
  log::info("rope scaling {} of factor {:g}: trained with {} tokens, the context is now {}", name_of(s.kind),
            s.factor, trained, config.context);
}

}  // namespace ingot
