// A job as a process of this machine: `ingot run` or `ingot launch`, in a session of its own. The process
// that starts it outlives the guard, waits for the job and records how it ended; both hold a lock while the
// job lives. So a guard that was killed at any moment finds the job again, and never starts a second one.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "guard/adaptor.h"
#include "guard/run_reader.h"

namespace ingot::guard {

class LocalAdaptor final : public Adaptor {
 public:
  /// `command` is the program and its arguments; a rewind appends --from and --skip-batches. `begin_seconds`:
  /// what the guard's clock shows now.
  LocalAdaptor(std::string run_folder, std::vector<std::string> command, double begin_seconds);
  const Observation& observe() override;
  void start(const StartRequest& request) override;
  /// SIGTERM to the job, which saves and ends; with `at_once` SIGKILL.
  void stop(bool at_once) override;
  /// One machine has no other to compare with: nothing fails.
  void burn_in(const std::vector<std::string>&) override {}
  std::optional<std::vector<std::string>> burned_in() override { return std::vector<std::string>(); }
  std::vector<int64_t> checkpoints() override { return reader_.checkpoints(); }
  void save_evidence(int64_t entry) override;
  void alert(const std::string& text) override;
  void ask(int64_t entry, const std::string& text) override;
  std::optional<std::vector<Action>> answer(int64_t entry) override;

 private:
  struct Job {
    int64_t number = 0;
    int pid = 0;
  };
  Job job() const;
  bool lives() const;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string run_, folder_;
  const std::vector<std::string> command_;
  const double offset_;  // of the guard's clock to the machine's
  std::string host_;     // of this machine, as its ranks call it
  RunReader reader_;
  Observation seen_;
};

/// Makes <run>/guard where it is missing, and returns it.
std::string guard_folder(const std::string& run_folder);
/// What a person answers to the question that is open; Error where none is.
void answer_question(const std::string& run_folder, const std::vector<Action>& actions);

}  // namespace ingot::guard
