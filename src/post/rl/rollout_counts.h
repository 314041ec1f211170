// How a run's problems went, by step, environment and difficulty: counts of all groups that were sampled,
// also of those that taught nothing. A file of few and short lines beside rollouts.jsonl, which keeps some
// groups whole.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "post/rl/rollout.h"

namespace ingot {

struct RolloutCounts {
  int64_t step = 0;  ///< of the run: the update that was made with the replies, from 1
  std::string environment;
  int64_t difficulty = 0;
  int64_t groups = 0, without_signal = 0;  ///< without: all replies have one reward
  int64_t replies = 0, failed = 0;         ///< failed: by their verifiers; no part of `reward`
  double reward = 0;                       ///< sum over the replies that were judged
  int64_t tokens = 0, truncated = 0;       ///< of all replies; replies that reached max_tokens
  void add(const RolloutCounts& other);    ///< all but step, environment and difficulty
  double pass_rate() const;                ///< mean reward; 0 without a verdict
  bool operator==(const RolloutCounts&) const = default;
};

/// One entry for each environment and difficulty among the groups, in order of both.
std::vector<RolloutCounts> count_rollouts(const std::vector<const RolloutGroup*>& groups, int64_t step);

std::string to_json_line(const RolloutCounts& counts);
/// Error on a line that to_json_line cannot have written; `where` names it.
RolloutCounts parse_rollout_counts(std::string_view text, const std::string& where);
/// In the file's order; a damaged line is left out with a warning. Error where the file is absent.
std::vector<RolloutCounts> read_rollout_counts(FileSystem& fs, const std::string& path);

/// The file's name in a run folder.
inline constexpr const char* kRolloutCountsFile = "rollout_counts.jsonl";

}  // namespace ingot
