// The real file system, which ends its process with SIGKILL at a chosen moment: what `kill -9` does to a run,
// at a place that a test can name.
#pragma once
#include <atomic>
#include <string>

#include "base/file_system.h"

namespace ingot::test {

/// When the process dies. Text form "<event> <number> <microseconds>":
///   data N          at the N-th change of a file below the data folder (from 0)
///   checkpoint N    at the N-th change below "checkpoints"; an append writes half of its bytes first
///   step N US       US microseconds after the N-th row of metrics.jsonl was written
///   copy N US       US microseconds after the N-th sync of metrics.jsonl, which precedes a checkpoint's copy
///   none            never; the process counts
struct KillPlan {
  std::string event = "none";
  int64_t number = 0;
  int64_t microseconds = 0;
  static KillPlan parse(const std::string& text);
};

/// Passes every call on. Thread-safe, as far as counting goes.
class KillFs final : public FileSystem {
 public:
  explicit KillFs(KillPlan plan) : plan_(std::move(plan)) {}
  /// Counts of events so far: "data 12\ncheckpoint 90\nstep 24\ncopy 7\n".
  std::string counts() const;

  std::unique_ptr<WritableFile> create(const std::string& path) override;
  std::unique_ptr<WritableFile> open_append(const std::string& path) override;
  std::unique_ptr<MappedFile> map(const std::string& path) override { return real_file_system().map(path); }
  std::string read(const std::string& path) override { return real_file_system().read(path); }
  bool exists(const std::string& path) override { return real_file_system().exists(path); }
  uint64_t size(const std::string& path) override { return real_file_system().size(path); }
  std::vector<std::string> list(const std::string& folder) override {
    return real_file_system().list(folder);
  }
  void create_folders(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_all(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  uint64_t free_bytes(const std::string& path) override { return real_file_system().free_bytes(path); }

 private:
  class File;
  /// True when this is the call that must not return.
  bool change(const std::string& path);
  void event(const char* name, std::atomic<int64_t>& count);
  KillPlan plan_;
  std::atomic<int64_t> data_{0}, checkpoint_{0}, steps_{0}, copies_{0};
};

}  // namespace ingot::test
