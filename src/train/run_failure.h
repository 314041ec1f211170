// Why a run ended, for programs that watch it: failure.json in the run folder. The exit code and the message
// stay what they are.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/enum.h"
#include "base/error.h"
#include "base/file_system.h"

namespace ingot {

enum class RunFault : uint8_t {
  late,        ///< ranks waited for another one until their deadline
  lost,        ///< a rank ended without a word
  not_finite,  ///< loss, gradient or weights
  diverged,    ///< also a gradient that stays 0
  mismatch,    ///< ranks that must agree do not
  storage,     ///< checkpoints or records cannot be written or read
  memory,
  config,  ///< found before the first step
  bug,
  unknown
};
constexpr auto enum_names(RunFault) {
  return names_in_order<RunFault>("late", "lost", "not_finite", "diverged", "mismatch", "storage", "memory",
                                  "config", "bug", "unknown");
}

/// A rank that holds other bits than it must, and its machine.
struct Suspect {
  int rank = 0;
  std::string host;
};

/// An error whose kind is known where it is thrown.
class RunError : public Error {
 public:
  /// `trouble_step`: where it began; a return must be to before it. 0: unknown.
  RunError(RunFault fault, const std::string& message, std::string hint = {}, int64_t trouble_step = 0)
      : Error(message, std::move(hint)), fault_(fault), trouble_step_(trouble_step) {}
  RunFault fault() const { return fault_; }
  int64_t trouble_step() const { return trouble_step_; }
  /// Of a mismatch: whose bits differ, among how many copies. Two copies, which cannot tell, are both there.
  void set_suspects(std::vector<Suspect> suspects, int copies) {
    suspects_ = std::move(suspects);
    copies_ = copies;
  }
  const std::vector<Suspect>& suspects() const { return suspects_; }
  int copies() const { return copies_; }

 private:
  RunFault fault_;
  int64_t trouble_step_;
  std::vector<Suspect> suspects_;
  int copies_ = 0;
};

/// The number of this start that a guard gave it (INGOT_GUARD_START); 0: none.
int64_t guard_start();

/// Writes failure.json for the exception that is being handled: {"format": 1, "start", "kind", "rank",
/// "host", "step", "trouble_step", "message", "hint", "time"}; of a mismatch also "suspects", a list of
/// {"rank", "host"} whose first one "rank" and "host" name, and "copies". Of several ranks the first one's
/// stays, unless it only tells of another. `trains`: steps had begun. Never throws.
void record_failure(FileSystem& fs, const std::string& folder, int rank, int64_t step, bool trains) noexcept;

}  // namespace ingot
