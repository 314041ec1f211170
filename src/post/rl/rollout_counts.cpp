// See rollout_counts.h.
#include "post/rl/rollout_counts.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "report/json_lines.h"

namespace ingot {

void RolloutCounts::add(const RolloutCounts& o) {
  groups += o.groups, without_signal += o.without_signal;
  replies += o.replies, failed += o.failed, reward += o.reward;
  tokens += o.tokens, truncated += o.truncated;
}

double RolloutCounts::pass_rate() const {
  return replies > failed ? reward / static_cast<double>(replies - failed) : 0;
}

std::vector<RolloutCounts> count_rollouts(const std::vector<const RolloutGroup*>& groups, int64_t step) {
  std::map<std::pair<std::string, int64_t>, RolloutCounts> found;
  for (const RolloutGroup* g : groups) {
    RolloutCounts one;
    one.groups = 1, one.without_signal = g->signal() ? 0 : 1;
    for (const Rollout& r : g->rollouts) {
      ++one.replies;
      one.failed += r.left_out ? 1 : 0;
      one.reward += r.left_out ? 0 : r.reward;
      one.tokens += r.length(), one.truncated += r.truncated() ? 1 : 0;
    }
    found[{g->problem.environment, g->problem.difficulty}].add(one);
  }
  std::vector<RolloutCounts> list;
  for (const auto& [key, counts] : found) {
    list.push_back(counts);
    list.back().step = step, list.back().environment = key.first, list.back().difficulty = key.second;
  }
  return list;
}

std::string to_json_line(const RolloutCounts& c) {
  const nlohmann::ordered_json j = {{"step", c.step},
                                    {"environment", c.environment},
                                    {"difficulty", c.difficulty},
                                    {"groups", c.groups},
                                    {"without_signal", c.without_signal},
                                    {"replies", c.replies},
                                    {"failed", c.failed},
                                    {"reward", c.reward},
                                    {"tokens", c.tokens},
                                    {"truncated", c.truncated}};
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RolloutCounts parse_rollout_counts(std::string_view text, const std::string& where) {
  try {
    const auto j = nlohmann::json::parse(text);
    RolloutCounts c;
    c.environment = j.at("environment"), c.reward = j.at("reward");
    const auto whole = [&](const char* key) {
      if (!j.at(key).is_number_integer()) fail("{}: '{}' is no whole number", where, key);
      return j.at(key).get<int64_t>();
    };
    c.step = whole("step"), c.difficulty = whole("difficulty");
    c.groups = whole("groups"), c.without_signal = whole("without_signal");
    c.replies = whole("replies"), c.failed = whole("failed");
    c.tokens = whole("tokens"), c.truncated = whole("truncated");
    if (c.without_signal < 0 || c.groups < c.without_signal || c.failed < 0 || c.replies < c.failed ||
        c.truncated < 0 || c.replies < c.truncated || c.tokens < 0)
      fail("{}: counts that do not agree: {}", where, text);
    return c;
  } catch (const nlohmann::json::exception& e) {
    fail("{}: no line of counts: {}", where, e.what());
  }
}

std::vector<RolloutCounts> read_rollout_counts(FileSystem& fs, const std::string& path) {
  std::vector<RolloutCounts> list;
  read_lines(fs, path, [&](std::string_view text, const std::string& where) {
    list.push_back(parse_rollout_counts(text, where));
  });
  return list;
}

}  // namespace ingot
