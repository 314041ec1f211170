// What all adaptors of real jobs share: the run folder, which says what the ranks do; the guard's folder in
// it, where evidence, alerts, questions and answers are; and the script that runs one start of the job and
// records how it ended.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/command.h"
#include "guard/adaptor.h"
#include "guard/run_reader.h"

namespace ingot::guard {

class FolderAdaptor : public Adaptor {
 public:
  const Observation& observe() final;
  /// Error where fewer nodes are asked for, which a person must arrange.
  void start(const StartRequest& request) final;
  void save_evidence(int64_t entry) override;
  void alert(const std::string& text) override;
  std::optional<std::vector<Action>> ask(int64_t entry, const std::string& text) override;

 protected:
  /// The start that job.json names; number 0: none.
  struct Job {
    int64_t number = 0;
    std::string id;  ///< of the batch system
    int pid = 0;     ///< on this machine
  };
  /// `command` is the job's program with its arguments. Asked to end, its script sends it `signal` ("TERM").
  /// `begin_seconds`: what the guard's clock shows now.
  FolderAdaptor(const std::string& run_folder, Words command, std::string signal, double begin_seconds);
  /// Begins a start that job.json does not have yet.
  virtual void begin(const StartRequest& request) = 0;
  /// Before the files of the job's ranks are read.
  virtual void look_at(const Job& job) = 0;
  /// What the job does, from seen_ and what look_at() saw. Adds nodes to seen_.
  virtual JobState judge(const Job& job) = 0;

  Job job() const;
  /// Of a file in the guard's folder.
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  bool has(const std::string& name) const;
  /// The script of a start; a rewind appends --from and --skip-batches to the command. It runs once, however
  /// often it is submitted, and leaves begun-<n>, job-<n>.log, and end-<n>.json with the exit code.
  std::string write_script(const StartRequest& request);

  const std::string run_, folder_;
  RunReader reader_;
  Observation seen_;

 private:
  void look_at_end(int64_t number);
  const Words command_;
  const std::string signal_;
  const double offset_;  // of the guard's clock to the machine's
};

/// Makes <run>/guard where it is missing, and returns it.
std::string guard_folder(const std::string& run_folder);
/// What a person answers to the question that is open; Error where none is.
void answer_question(const std::string& run_folder, const std::vector<Action>& actions);

}  // namespace ingot::guard
