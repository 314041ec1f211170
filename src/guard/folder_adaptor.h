// What all adaptors of real jobs share: the run folder, which says what the ranks do, and the guard's folder
// in it, where evidence, alerts, questions and answers are.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "guard/adaptor.h"
#include "guard/run_reader.h"

namespace ingot::guard {

class FolderAdaptor : public Adaptor {
 public:
  std::vector<int64_t> checkpoints() override { return reader_.checkpoints(); }
  void save_evidence(int64_t entry) override;
  void alert(const std::string& text) override;
  void ask(int64_t entry, const std::string& text) override;
  std::optional<std::vector<Action>> answer(int64_t entry) override;

 protected:
  /// `begin_seconds`: what the guard's clock shows now.
  FolderAdaptor(const std::string& run_folder, double begin_seconds);
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void look_at_clocks();
  /// Exit code and failure of an ended start, from end-<number>.json, where the job left one.
  void look_at_end(int64_t number);
  /// The job's command for a start: a rewind appends --from and --skip-batches.
  static std::vector<std::string> job_command(const std::vector<std::string>& command,
                                              const StartRequest& request);

  const std::string run_, folder_;
  RunReader reader_;
  Observation seen_;

 private:
  const double offset_;  // of the guard's clock to the machine's
};

/// Makes <run>/guard where it is missing, and returns it.
std::string guard_folder(const std::string& run_folder);
/// What a person answers to the question that is open; Error where none is.
void answer_question(const std::string& run_folder, const std::vector<Action>& actions);

}  // namespace ingot::guard
