// What a guard sees of a job at one moment, before any judgement: what the run's files and the job's adaptor
// say. Readers of files and the simulated cluster both make it. Plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/enum.h"
#include "report/failure_report.h"
#include "report/rank_status.h"

namespace ingot::guard {

enum class JobState : uint8_t { absent, starting, running, ended };
constexpr auto enum_names(JobState) {
  return names_in_order<JobState>("absent", "starting", "running", "ended");
}

/// The answer of a node, or of one rank on it. A node has any number of them.
struct NodeReport {
  std::string name;      ///< of the node
  int64_t rank = -1;     ///< -1: the node
  double age = 0;        ///< seconds since it said so
  double busy = 0;       ///< seconds a step that the rank computes, or the node's slowest one; 0: unknown
  bool is_down = false;  ///< as the batch system says, whatever the ages
  int64_t throttled = 0, memory_errors = 0, link_errors = 0;  ///< link errors: in the last 5 minutes
  bool late = false;                                          ///< others wait for it
  bool has_data = true;                                       ///< its training data were verified
};

struct Observation {
  double now = 0;   ///< seconds of a clock that never jumps
  double wall = 0;  ///< seconds since 1970 as the machine says; may jump
  JobState job = JobState::absent;
  int exit_code = -1;  ///< of an ended job; -1: unknown or killed
  int64_t start = 0;   ///< counts the starts of the job
  RankStatus first;    ///< what the first rank of this start says
  std::vector<NodeReport> nodes;
  std::optional<FailureReport> failure;  ///< of this start
  std::vector<std::string> log;          ///< lines that this start has printed since the last observation
  std::vector<int64_t> checkpoints;      ///< steps of complete ones, ascending
  int64_t damaged_checkpoints = 0;       ///< newer than the newest complete one
  double checkpoint_age = 0;             ///< in units of the usual time between two
  double disk_free = 1;                  ///< share of the disk of the run's folder
  std::vector<Suspect> minority;         ///< whose digests differ from those of most copies
  int64_t copies = 0;                    ///< that were compared
  int64_t agreed_step = -1;              ///< of the last comparison in which all were equal; -1: unknown
};

}  // namespace ingot::guard
