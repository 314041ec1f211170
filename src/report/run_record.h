// run.json: the description of a run besides its metrics. Groups of named values in display
// order: "build" and "machine" are filled here, "model", "data", "plan", "kernels" and others by the trainer,
// "config" is the resolved recipe, "starts" has an entry for each start of the run. Also the names of the
// files of a run folder, in one place.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/config_node.h"
#include "base/error.h"
#include "base/file_system.h"
#include "report/prediction.h"

namespace ingot {

namespace run_files {
inline constexpr const char* kRecord = "run.json";
/// Resolved recipe, a valid recipe itself. Those of earlier starts that differed are config.<start>.toml.
inline constexpr const char* kConfig = "config.toml";
inline constexpr const char* kTokenizer = "tokenizer";        ///< folder: the tokenizer of the run
inline constexpr const char* kValidation = "validation";      ///< folder: the sources' validation splits
inline constexpr const char* kMetrics = "metrics.jsonl";      ///< see metrics.h
inline constexpr const char* kSamples = "samples.jsonl";      ///< see Sample
inline constexpr const char* kEvents = "events";              ///< folder of TensorBoard files
inline constexpr const char* kCheckpoints = "checkpoints";    ///< folder, one folder per checkpoint
inline constexpr const char* kProfile = "profile.json";       ///< optional, from `ingot profile --json`
inline constexpr const char* kReasoning = "reasoning.jsonl";  ///< optional, see reason_results.h
inline constexpr const char* kReport = "report.html";
inline constexpr const char* kLogs = "logs";  ///< folder of rank-<r>.log files, if several ranks
}  // namespace run_files

/// The format of run.json that this program writes; it reads this one and earlier ones.
inline constexpr int64_t kRecordFormat = 3;

/// A run folder that a newer program wrote.
class NewerRun : public Error {
 public:
  using Error::Error;
};

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

  /// A start of the run, or a resume.
  struct Start {
    std::vector<Entry> facts;  ///< time, step, program, ..., in display order
    std::vector<std::pair<std::string, std::string>> environment;
    std::vector<ConfigDifference> changes;  ///< of the recipe since the start before
    std::vector<Prediction> predictions;    ///< beside what was measured; empty until the start ends
    const Value* find(const std::string& name) const;
    std::string text(const std::string& name) const;  ///< "unknown" where it is absent
    void set(const std::string& name, Value value);
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

  /// Oldest first.
  const std::vector<Start>& starts() const { return starts_; }
  /// The folder in which the last start ran; "" if it is unknown.
  std::string working_folder() const;

  std::string json() const;

 private:
  friend void record_start(FileSystem& fs, const std::string& folder, RunRecord record, Start start,
                           std::span<const RenamedKey> renamed);
  friend void set_predictions(FileSystem& fs, const std::string& folder, std::vector<Prediction> predictions);
  friend RunRecord read_run_record(FileSystem& fs, const std::string& folder);
  std::vector<Group> groups_;
  std::vector<Start> starts_;
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

/// A start of this program now: its time, version, commit and working folder, and those variables of the
/// environment that can change what a run does (OMP_*, INGOT_*, and a fixed list).
RunRecord::Start start_of_this_program(double wall);
/// Writes the record of a run that starts or resumes, with the starts so far and `start`, whose changes are
/// those between the folder's config.toml and that of `record`. Where they differ, the old file stays as
/// config.<n>.toml, n the number of the last start that had it. A run.json that cannot be read is kept as
/// run.json.damaged. `renamed`: keys that the old config.toml may name as they were. Throws NewerRun.
void record_start(FileSystem& fs, const std::string& folder, RunRecord record, RunRecord::Start start,
                  std::span<const RenamedKey> renamed);

/// Replaces those of the last start in a folder's run.json: what is known only when it ends.
void set_predictions(FileSystem& fs, const std::string& folder, std::vector<Prediction> predictions);
/// What differed from the start before, for each start: "phases.0.lr 0.005 -> 0.001, threads 2 -> 1"; empty
/// for the first one, and where nothing did.
std::vector<std::string> start_changes(const RunRecord& record);
/// The starts after the first in a line each: "start 2 at step 13, 2026-01-31 ...: phases.0.lr ...".
std::vector<std::string> describe_starts(const RunRecord& record);

/// The value as text; numbers in the shortest exact form.
std::string value_text(const RunRecord::Value& value);

}  // namespace ingot
