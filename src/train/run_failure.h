// Errors that know why a run ends, and the record of it for programs that watch the run. The exit code and
// the message stay what they are.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_system.h"
#include "report/failure_report.h"

namespace ingot {

/// An error whose kind is known where it is thrown.
class RunError : public Error {
 public:
  /// `trouble_step`: where it began; a return must be to before it. 0: unknown.
  RunError(FailureKind fault, const std::string& message, std::string hint = {}, int64_t trouble_step = 0)
      : Error(message, std::move(hint)), fault_(fault), trouble_step_(trouble_step) {}
  FailureKind fault() const { return fault_; }
  int64_t trouble_step() const { return trouble_step_; }
  /// Of a mismatch: whose bits differ, among how many copies. Two copies, which cannot tell, are both there.
  void set_suspects(std::vector<Suspect> suspects, int copies) {
    suspects_ = std::move(suspects);
    copies_ = copies;
  }
  const std::vector<Suspect>& suspects() const { return suspects_; }
  int copies() const { return copies_; }

 private:
  FailureKind fault_;
  int64_t trouble_step_;
  std::vector<Suspect> suspects_;
  int copies_ = 0;
};

/// The number of this start that a guard gave it (INGOT_GUARD_START); 0: none.
int64_t guard_start();

/// Writes failure.json (report/failure_report.h) for the exception that is being handled. Of several ranks
/// the first one's stays, unless it only tells of another. `trains`: steps had begun. Never throws.
void record_failure(FileSystem& fs, const std::string& folder, int rank, int64_t step, bool trains) noexcept;

}  // namespace ingot
