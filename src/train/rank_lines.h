// Lines of ranks.jsonl: how every rank of a run spent the steps of a window. A window ends with a step that
// gets a line of the log, with a checkpoint and with the run, so that every step is in exactly one.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace ingot {

inline constexpr const char* kRanksFile = "ranks.jsonl";

/// By rank, all of one length; seconds, sums over the window. A rank's three add up to the time of its steps.
struct RankTimes {
  int64_t step = 0;                                            ///< the last one of the window
  int64_t steps = 0;                                           ///< of the window
  std::vector<double> busy = {}, waited = {}, data_wait = {};  ///< computes; for other ranks; for data
  bool operator==(const RankTimes&) const = default;
};

/// One line without its newline: {"step", "steps", "busy": [...], "waited": [...], "data_wait": [...]}.
std::string to_json_line(const RankTimes& times);
/// Throws Error on a line that to_json_line() cannot have written; `where` names the line in the message.
RankTimes parse_rank_times(std::string_view line, const std::string& where);

/// All lines, in order; damaged ones are left out with a warning. Empty where there is no file.
std::vector<RankTimes> read_rank_times(FileSystem& fs, const std::string& path);

}  // namespace ingot
