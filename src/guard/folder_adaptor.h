// What an adaptor of a real job does with files alone: the guard's folder in the run's, where evidence,
// alerts, questions and answers are; and the script that runs one start of the job and records how it ended.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/command.h"
#include "guard/adaptor.h"

namespace ingot::guard {

class FolderAdaptor : public Adaptor {
 public:
  void save_evidence(int64_t entry) override;
  void alert(const std::string& text) override;
  std::optional<std::vector<Action>> ask(int64_t entry, const std::string& text) override;

 protected:
  /// The start that job.json names; number 0: none.
  struct Job {
    int64_t number = 0;
    std::string id;  ///< as the commands call it
  };
  explicit FolderAdaptor(std::string run_folder);

  Job job() const;
  void record(const Job& job);
  /// Of a file in the guard's folder.
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  bool has(const std::string& name) const;
  /// Where the script of a start leaves its exit code, {"code": 0}.
  static std::string end_of(int64_t number) { return fmt::format("end-{}.json", number); }
  /// The script of a start: of the job's program and its arguments, to which a rewind appends --from and
  /// --skip-batches. It runs once, however often it is submitted, and leaves begun-<n>, job-<n>.log and
  /// end_of(n). Asked to end, it sends the program `signal` ("TERM").
  std::string write_script(const StartRequest& request, Words words, const std::string& signal);

  const std::string run_, folder_;
};

/// Makes <run>/guard where it is missing, and returns it.
std::string guard_folder(const std::string& run_folder);
/// What a person answers to the question that is open; Error where none is.
void answer_question(const std::string& run_folder, const std::vector<Action>& actions);

}  // namespace ingot::guard
