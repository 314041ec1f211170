// run.json: the description of a run besides its metrics. Groups of named values in display
// order: "build" and "machine" are filled here, "model", "data", "plan", "kernels" and others by the trainer,
// "config" is the resolved recipe. Also the names of the files of a run folder, in one place.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/config_node.h"
#include "base/file_system.h"

namespace ingot {

namespace run_files {
inline constexpr const char* kRecord = "run.json";
inline constexpr const char* kConfig = "config.toml";       ///< resolved recipe, a valid recipe itself
inline constexpr const char* kMetrics = "metrics.jsonl";    ///< see metrics.h
inline constexpr const char* kSamples = "samples.jsonl";    ///< see Sample
inline constexpr const char* kEvents = "events";            ///< folder of TensorBoard files
inline constexpr const char* kCheckpoints = "checkpoints";  ///< folder, one folder per checkpoint
inline constexpr const char* kProfile = "profile.json";     ///< optional, from `ingot profile --json`
inline constexpr const char* kReport = "report.html";
inline constexpr const char* kLogs = "logs";  ///< folder of rank-<r>.log files, if several ranks
}  // namespace run_files

class RunRecord {
 public:
  using Value = std::variant<std::string, int64_t, double>;
  struct Entry {
    std::string name;
    Value value;
  };
  struct Group {
    std::string name;
    std::vector<Entry> entries;
  };

  /// A record of this program on this machine: groups "run" (name, time), "build" and "machine".
  static RunRecord of_this_machine(const std::string& run_name, double wall);
  static RunRecord parse(const std::string& json, const std::string& where);

  /// Adds or replaces one value.
  void set(const std::string& group, const std::string& name, Value value);
  const Value* find(const std::string& group, const std::string& name) const;
  const std::vector<Group>& groups() const { return groups_; }
  /// Keeps `config` as JSON for run.json and as TOML for the report and config.toml.
  void set_config(const ConfigNode& config);
  const std::string& config_toml() const { return config_toml_; }

  std::string json() const;

 private:
  friend RunRecord read_run_record(FileSystem& fs, const std::string& folder);
  std::vector<Group> groups_;
  std::string config_toml_, config_json_ = "{}";
};

/// Text generated during the run, one JSON object per line of samples.jsonl.
struct Sample {
  int64_t step = 0;
  std::string prompt, text;  ///< `text` continues `prompt`; invalid UTF-8 becomes U+FFFD in the file
};
void append_sample(FileSystem& fs, const std::string& path, const Sample& sample);
/// To resume at `step`: atomically removes later samples and a torn last line, and sets damaged lines aside
/// (json_lines.h). The file may be absent.
void drop_samples_after(FileSystem& fs, const std::string& path, int64_t step);
/// Ignores a torn last line, and leaves out damaged ones with a warning. Empty if the file is absent.
std::vector<Sample> read_samples(FileSystem& fs, const std::string& path);

/// Writes run.json and config.toml into `folder` (made if absent), each atomically.
void write_run_record(FileSystem& fs, const std::string& folder, const RunRecord& record);
RunRecord read_run_record(FileSystem& fs, const std::string& folder);

/// The value as text; numbers in the shortest exact form.
std::string value_text(const RunRecord::Value& value);

}  // namespace ingot
