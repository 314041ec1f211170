// `ingot doctor`: examines the machine, the program and its environment. One finding per fact that decides
// whether runs work and how fast they are.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/enum.h"

namespace ingot {

struct Finding {
  enum class Level {
    ok,
    note,    ///< works, but slower or differently than expected
    problem  ///< something will not work
  };
  Level level = Level::ok;
  std::string topic;   ///< "huge pages"
  std::string text;    ///< what was found
  std::string remedy;  ///< what to do; empty where the level is ok
};
constexpr auto enum_names(Finding::Level) {
  return names_in_order<Finding::Level>("ok", "note", "problem");
}

struct DoctorOptions {
  std::string folder = ".";                ///< of future runs; its nearest existing parent is examined
  int64_t disk_bytes = int64_t{64} << 20;  ///< written and synced there three times; 0: no measurement
  bool rates = true;                       ///< measures what the processor's instructions reach
  std::string root = "/";                  ///< replaces "/" in paths of /proc and /sys, for tests
  std::vector<std::string> logs;           ///< files for findings_of_log() (doctor_log.h)
};

/// Takes about a second. Throws only if the folder has no existing parent.
std::vector<Finding> examine(const DoctorOptions& options);

bool any_problem(const std::vector<Finding>& findings);
/// A line per finding, the remedy below it, and a summary.
std::string to_text(const std::vector<Finding>& findings);
/// {"format": 1, "works", "findings": [{"level", "topic", "text", "remedy"}]}
std::string to_json(const std::vector<Finding>& findings);

}  // namespace ingot
