// A job as a process of this machine: `ingot run` or `ingot launch`, behind its script in a session of its
// own, which outlives the guard. Both hold a lock while the job lives. So a guard that was killed at any
// moment finds the job again, and never starts a second one.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "guard/folder_adaptor.h"

namespace ingot::guard {

class LocalAdaptor final : public FolderAdaptor {
 public:
  /// `command` is the program and its arguments, `burn_in` what tests this machine: exit code 0 where it is
  /// sound. `begin_seconds`: what the guard's clock shows now.
  LocalAdaptor(const std::string& run_folder, Words command, Words burn_in, double begin_seconds);
  /// SIGTERM to the job, which saves and ends; with `at_once` SIGKILL to all of its process group.
  void stop(bool at_once) override;
  std::optional<std::vector<std::string>> burn_in(const std::vector<std::string>& nodes) override;

 private:
  /// Where this machine is left out: Error, which asks a person; the next request of that start is obeyed.
  void begin(const StartRequest& request) override;
  void look_at(const Job& job) override;
  JobState judge(const Job& job) override;
  bool lives() const;

  const Words burn_in_;
  const std::string host_;  // of this machine, as its ranks call it
  std::unique_ptr<Command> test_;
  int64_t refused_ = 0;  // number of a start on a machine that is left out
};

}  // namespace ingot::guard
