// Kills the process with SIGKILL, stops it or delays it at a chosen moment of a run, which a test names by
// phase and event number.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "base/file_system.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test {

/// The process dies at event `number` (from 0) of `phase`, or `microseconds` later. Until then the run may
/// finish what it is doing, but its next event waits, so the kill always falls into this phase.
/// Text form "<phase> <number> <microseconds> <fault>"; "none": never.
struct KillPlan {
  std::string phase = "none";
  int64_t number = 0;
  int64_t microseconds = 0;
  std::string fault = "kill";  ///< or "stop" (SIGSTOP), "delay" (by 1.2 s), which the process may survive
  std::string note;            ///< file that gets the time (monotonic_seconds) of the fault; empty: none
  static KillPlan parse(const std::string& text);
};

/// Counts the events of each phase, and kills at the planned one:
///   prepare    every change of a file below the data folder
///   data       a step asks for its batch
///   forward, backward    an op has written a tensor
///   optimizer  the gradient is complete
///   update     the optimizer is about to update the weights
///   records    validation, metrics or samples begin
///   copy       a checkpoint's tensors are about to be copied
///   write      a file below "checkpoints" is created, synced, or appended to (half of the bytes are written)
///   rename     before and after each rename below "checkpoints"
///   delete     something below "checkpoints" is about to be removed
/// Thread-safe. Before it dies the process prints "killed in <phase>". Events before arm() do not count.
class Killer {
 public:
  explicit Killer(KillPlan plan, bool armed = true) : plan_(std::move(plan)), armed_(armed) {}
  void arm() { armed_ = true; }
  /// Chooses another event than the plan's; call it before arm().
  void choose(int64_t number) { plan_.number = number; }
  /// Reports one event. True: the caller must call die() after what it wants to leave half done.
  bool happens(const std::string& phase);
  void die() const;
  void happens_or_die(const std::string& phase) {
    if (happens(phase)) die();
  }
  /// The events so far: "prepare 12\ndata 24\n...".
  std::string counts() const;

 private:
  KillPlan plan_;
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> counts_;  // guarded by mutex_
  std::atomic<bool> armed_;
  std::atomic<bool> pending_ = false;  // a timed kill is about to happen
};

/// The events that are changes of files; every call goes to the real file system.
class KillFs : public FileSystem {
 public:
  explicit KillFs(Killer& killer) : killer_(killer) {}
  std::unique_ptr<WritableFile> create(const std::string& path) override;
  std::unique_ptr<WritableFile> open_append(const std::string& path) override;
  std::unique_ptr<MappedFile> map(const std::string& path) override { return real_file_system().map(path); }
  std::string read(const std::string& path) override { return real_file_system().read(path); }
  bool exists(const std::string& path) override { return real_file_system().exists(path); }
  uint64_t size(const std::string& path) override { return real_file_system().size(path); }
  std::optional<FileStamp> stamp(const std::string& path) override { return real_file_system().stamp(path); }
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
  Killer& killer_;
};

/// The events that a trainer reports.
class KillObserver final : public RunObserver {
 public:
  explicit KillObserver(Killer& killer) : killer_(killer) {}
  void enters(StepPart phase) override;
  void tensor(const std::string& name, const Tensor& value) override;
  /// "forward" or "backward", from a tensor's name.
  static const char* phase_of(const std::string& tensor);

 private:
  Killer& killer_;
};

/// What a disabled test does that kill_in_child() starts: runs the recipe and is killed as planned, or ends,
/// printing the plan and the counts. False where no test has started it: nothing happened.
bool run_until_killed();
/// Runs the disabled test `child` ("Suite.*") of this program on a recipe, in a process of its own. kill: a
/// plan's text.
ProcessResult kill_in_child(const std::string& child, const std::string& recipe, const std::string& kill);
/// The events of a child that ended, by phase.
std::map<std::string, int64_t> counted_events(const ProcessResult& child);

}  // namespace ingot::test
