// reasoning.jsonl of a run folder: what test-time compute gave on held-out problems (`ingot reason
// --record`), one JSON object a line. The report draws accuracy over decoded tokens from it (reason_plots.h).
// Plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace ingot {

/// A round of rollouts: means over the problems, with standard errors where there are several.
struct ReasonRound {
  double right = 0, majority = 0, any = 0;  ///< reward of a rollout, of the most common answer, of the best
  std::optional<double> right_error, majority_error;
  std::optional<double> picked;  ///< of rollouts that saw a right candidate: share that is right
  double tokens = 0;             ///< generated for a problem up to and with this round ([ZAYA1-8B] eq. 24)
  int64_t longest_prompt = 0;    ///< tokens
};

struct ReasonResult {
  std::string name;      ///< of the model, as it was recorded: "trained"
  std::string problems;  ///< "sort:6-8"
  int64_t count = 0;     ///< of problems
  int64_t population = 1, candidates = 1, budget = 0, tail = 0;
  std::string compaction = "tail";
  int64_t prompt_bound = 0;  ///< no prompt is longer: the problem with C tails of full length; 0: no rounds
  std::vector<ReasonRound> rounds;  ///< at least one
};

std::string to_json_line(const ReasonResult& result);
/// Error on a line that to_json_line cannot have written; `where` names it.
ReasonResult parse_reason_result(std::string_view line, const std::string& where);

/// Appends to the file of a run folder. Error where the folder holds no run.
void record_reason_result(FileSystem& fs, const std::string& run_folder, const ReasonResult& result);
/// The last of each name, problems and method, in order of their first appearance; a damaged line is left out
/// with a warning. Empty where the file is absent.
std::vector<ReasonResult> read_reason_results(FileSystem& fs, const std::string& run_folder);

}  // namespace ingot
