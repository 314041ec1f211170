// What a guard can see and do: the job's files and processes, a batch system, or a simulated cluster. Every
// function may be repeated: a guard that was killed repeats the action that it had begun. Called from one
// thread. A function that cannot do its work throws Error; the guard notes it and asks a person.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "guard/observation.h"
#include "guard/rules.h"

namespace ingot::guard {

struct StartRequest {
  int64_t number = 1;                 ///< of the start, from 1; a second request of one number does nothing
  std::vector<std::string> excluded;  ///< nodes to leave out, in order
  int64_t from_step = -1;             ///< checkpoint to go back to; -1: the newest
  int64_t skip_batches = 0;
  bool fewer = false;  ///< on the nodes that are left, without waiting for others; the simulator alone can
};

class Adaptor {
 public:
  virtual ~Adaptor() = default;
  /// Valid until the next call of any function.
  virtual const Observation& observe() = 0;
  virtual void start(const StartRequest& request) = 0;
  /// Asks the job to save and end, or with `at_once` ends it.
  virtual void stop(bool at_once) = 0;
  /// Tests nodes, where it does not test already: those that failed; nothing while it runs.
  virtual std::optional<std::vector<std::string>> burn_in(const std::vector<std::string>& nodes) = 0;
  /// Keeps what the job said, under the number of a journal entry.
  virtual void save_evidence(int64_t entry) = 0;
  virtual void alert(const std::string& text) = 0;
  /// Asks a person, once for an entry: what they answered; nothing yet.
  virtual std::optional<std::vector<Action>> ask(int64_t entry, const std::string& text) = 0;
};

}  // namespace ingot::guard
