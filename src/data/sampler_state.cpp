// The sampler's state as JSON, see sampler.h.
#include <cmath>

#include "data/json_fields.h"
#include "data/sampler.h"

namespace ingot::data {
namespace {

using nlohmann::json;

constexpr const char* kStateFormat = "ingot sampler state";
constexpr int64_t kMostSamples = int64_t{1} << 56;

SampleMode parse_mode(const std::string& name, const std::string& where) {
  for (const auto& [mode, text] : enum_names(SampleMode{}))
    if (name == text) return mode;
  fail("{}: mode is '{}', expected 'stream', 'best_fit' or 'random'", where, name);
}

SourceState parse_source(const json& value, const std::string& where) {
  JsonFields f(value, where);
  SourceState s;
  s.name = f.text("name");
  s.content_hash = f.text("content_hash");
  s.weight = f.number("weight");
  if (!std::isfinite(s.weight) || s.weight < 0)
    fail("{}: 'weight' is {}, expected at least 0", where, s.weight);
  s.consumed = f.integer("consumed", 0, kMostSamples);
  s.phase_begin = f.integer("stage_begin", 0, s.consumed);
  f.refuse_others();
  return s;
}

}  // namespace

std::string to_json(const SamplerState& state) {
  json sources = json::array();
  for (const SourceState& s : state.sources)
    sources.push_back({{"name", s.name},
                       {"content_hash", s.content_hash},
                       {"weight", s.weight},
                       {"stage_begin", s.phase_begin},
                       {"consumed", s.consumed}});
  return json{{"format", kStateFormat},
              {"version", 1},
              {"seed", state.seed},
              {"sequence_length", state.sequence_length},
              {"mode", name_of(state.mode)},
              {"samples", state.samples},
              {"stage_begin", state.phase_begin},
              {"sources", std::move(sources)}}
      .dump(1);
}

SamplerState parse_sampler_state(std::string_view text, const std::string& origin) {
  const json value = parse_json(text, origin);
  const std::string where = fmt::format("'{}'", origin);
  JsonFields f(value, where);
  check_format(f, kStateFormat, 1);
  SamplerState state;
  const json& seed = f.get("seed");
  if (!seed.is_number_unsigned()) fail("{}: 'seed' is {}, expected an integer >= 0", where, seed.dump());
  state.seed = seed.get<uint64_t>();
  state.sequence_length = f.integer("sequence_length", 1, INT32_MAX);
  state.mode = parse_mode(f.text("mode"), where);
  state.samples = f.integer("samples", 0, kMostSamples);
  state.phase_begin = f.integer("stage_begin", 0, state.samples);
  for (const json& source : f.list("sources")) {
    state.sources.push_back(
        parse_source(source, fmt::format("{}: sources[{}]", where, state.sources.size())));
    if (state.sources.size() > 1 &&
        !(state.sources[state.sources.size() - 2].name < state.sources.back().name))
      fail("{}: sources are not in order of name", where);
  }
  f.refuse_others();
  return state;
}

}  // namespace ingot::data
