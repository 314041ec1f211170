// See curriculum.h.
#include "post/rl/curriculum.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot {

Curriculum::Curriculum(std::vector<CurriculumEnvironment> environments, CurriculumRule rule)
    : environments_(std::move(environments)), rule_(rule), states_(environments_.size()) {
  if (environments_.empty()) throw Error("a curriculum needs at least one environment");
  for (size_t e = 0; e < environments_.size(); ++e) {
    const CurriculumEnvironment& c = environments_[e];
    for (size_t other = 0; other < e; ++other)
      if (environments_[other].name == c.name)
        throw Error(fmt::format("environment '{}' is named twice", c.name),
                    "name each once, with its weight");
    if (c.lowest > c.highest || c.start < c.lowest || c.start > c.highest)
      fail("environment '{}': the first difficulty {} is not in its range {} .. {}", c.name, c.start,
           c.lowest, c.highest);
    states_[e].difficulty = c.start;
  }
}

Curriculum::Draw Curriculum::draw(const Random& random, uint64_t index) {
  std::vector<double> until;
  double sum = 0;
  for (size_t e = 0; e < states_.size(); ++e) {
    const double w = environments_[e].weight;
    sum += w <= 0 ? 0 : w / (1 + static_cast<double>(states_[e].drawn) / w);
    until.push_back(sum);
  }
  const double at = static_cast<double>(random.uniform(4 * index)) * sum;
  Draw draw;
  while (draw.environment + 1 < until.size() && !(at < until[draw.environment])) ++draw.environment;
  State& state = states_[draw.environment];
  const CurriculumEnvironment& c = environments_[draw.environment];
  const int64_t last = rule_.moves ? state.difficulty : c.highest;
  const int64_t first = rule_.moves ? std::max(c.lowest, state.difficulty - rule_.window) : c.lowest;
  draw.difficulty =
      first + static_cast<int64_t>(random.below(2 * index + 1, static_cast<uint64_t>(last - first + 1)));
  ++state.drawn;
  return draw;
}

int64_t Curriculum::report(const Draw& of, double pass_rate) {
  State& state = states_[of.environment];
  state.best.add(pass_rate);
  if (!rule_.moves || of.difficulty != state.difficulty) return 0;
  const CurriculumEnvironment& c = environments_[of.environment];
  const int64_t before = state.difficulty;
  if (pass_rate > rule_.raise)
    state.difficulty = std::min(c.highest, before + 1);
  else if (pass_rate <= 0)
    state.difficulty = std::max(c.lowest, before - 1);
  return state.difficulty - before;
}

void Curriculum::set_difficulty(size_t environment, int64_t difficulty) {
  const CurriculumEnvironment& c = environments_[environment];
  states_[environment].difficulty = std::clamp(difficulty, c.lowest, c.highest);
}

std::string Curriculum::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t e = 0; e < states_.size(); ++e) {
    const State& s = states_[e];
    list.push_back({{"environment", environments_[e].name},
                    {"difficulty", s.difficulty},
                    {"drawn", s.drawn},
                    {"mean", s.best.mean()},
                    {"best", s.best.best()},
                    {"groups", s.best.groups()}});
  }
  return list.dump();
}

void Curriculum::restore(const std::string& json, const std::string& where) {
  try {
    const auto list = nlohmann::json::parse(json);
    if (!list.is_array() || list.size() != states_.size())
      fail("{}: the curriculum has {} environments, expected {}", where, list.size(), states_.size());
    std::vector<State> states;
    for (size_t e = 0; e < states_.size(); ++e) {
      const auto& s = list[e];
      const CurriculumEnvironment& c = environments_[e];
      if (const std::string name = s.at("environment"); name != c.name)
        fail("{}: the curriculum continues environment '{}', the recipe has '{}' in its place", where, name,
             c.name);
      State& state = states.emplace_back();
      state.difficulty = s.at("difficulty");
      if (state.difficulty < c.lowest || state.difficulty > c.highest)
        fail("{}: environment '{}' stands at difficulty {}, outside {} .. {}", where, c.name,
             state.difficulty, c.lowest, c.highest);
      state.drawn = s.at("drawn");
      state.best.restore(s.at("mean"), s.at("best"), s.at("groups"));
    }
    states_ = std::move(states);
  } catch (const nlohmann::json::exception& e) {
    fail("{}: the curriculum is damaged: {}", where, e.what());
  }
}

}  // namespace ingot
