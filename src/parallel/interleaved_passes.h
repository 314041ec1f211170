// Two passes of one rank that run interleaved: while one waits for other ranks, the other computes.
//
// They take turns on one thread, the second on a stack of its own; a pass yields where it waits, except at a
// wait that is shorter (wait_length() of rank_groups.h) than the one in which the other is: that one would
// only wait longer, and this pass would come late to the exchange that takes longest.
// Which one runs therefore follows from the programs and never from time: collectives begin in the same order
// on all ranks, and results do not change.
#pragma once
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/fiber.h"
#include "comm/communicator.h"

namespace ingot {

class InterleavedPasses {
 public:
  /// Runs both passes to their ends, starting with `first`. Rethrows what one of them threw; the other one
  /// gets an Error at its next wait.
  void run(const std::function<void()>& first, const std::function<void()>& second);
  /// The pass (0 or 1) that the calling thread runs; 0 outside of run().
  static int current();
  /// A communicator over the same ranks that yields: the first wait after operations were started lets the
  /// other pass run until that one yields or ends. Valid as long as this object and `group`; nullptr for
  /// nullptr.
  Communicator* yield_while_waiting(Communicator* group);
  /// All such waits, and those during which the other pass ran.
  struct Waits {
    int64_t all = 0, hidden = 0;
  };
  const Waits& waits() const { return waits_; }

 private:
  class YieldingCommunicator;
  void yield(int length);
  void take_turn(int pass);
  void run_pass(int pass, const std::function<void()>& work);

  Fiber second_;
  bool running_ = false;
  int turn_ = 0;
  bool ended_[2] = {true, true};
  bool started_[2] = {false, false};  ///< by pass: operations that nobody has waited for
  int waiting_[2] = {0, 0};           ///< by pass: length of the wait at which it yielded; 0: it did not
  std::exception_ptr error_;          ///< the first one
  Waits waits_;
  std::map<Communicator*, std::unique_ptr<Communicator>> groups_;
};

}  // namespace ingot
