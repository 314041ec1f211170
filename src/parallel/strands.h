// Two strands of work that share one rank: one runs while the other waits for other ranks. They lie on two
// threads, of which only one runs at a time; each hands over where it waits, so which one runs follows from
// the programs and never from time: collectives begin in the same order on all ranks, and results do not
// change.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "comm/communicator.h"

namespace ingot {

class Strands {
 public:
  /// Runs both to their ends, `first` first. Rethrows what one of them threw; the other one gets an Error at
  /// its next wait.
  void run(const std::function<void()>& first, const std::function<void()>& second);
  /// Which of both the calling thread runs; 0 outside.
  static int current();
  /// A communicator over the same ranks: the first wait after operations were started lets the other strand
  /// run until that waits or ends. Valid as long as this object and `group`; nullptr for nullptr.
  Communicator* hand_over_waiting_for(Communicator* group);
  /// Such waits, and those during which the other strand ran.
  struct Waits {
    int64_t all = 0, hidden = 0;
  };
  const Waits& waits() const { return waits_; }

 private:
  class HandingOver;
  void hand_over();
  void end(int strand, std::exception_ptr error);
  void wait_for_turn(std::unique_lock<std::mutex>& lock, int strand);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  int turn_ = 0;
  bool ended_[2] = {true, true};
  bool started_[2] = {false, false};  ///< operations that nobody has waited for
  std::exception_ptr error_;          ///< the first one
  Waits waits_;
  std::map<Communicator*, std::unique_ptr<Communicator>> groups_;
};

}  // namespace ingot
