// A thread that acts while a rank is busy or stuck in a call into the network: on SIGTERM (the launcher ends
// the run, or Slurm takes the node) it records where the rank is and ends the process.
#pragma once
#include <signal.h>

#include <functional>
#include <thread>

namespace ingot {

class Watchdog {
 public:
  /// Blocks SIGTERM in the calling thread, and so in threads created later, those of the MPI library too.
  Watchdog();
  /// From now on the watchdog receives the signal, calls on_terminate(), and then runs the process's own
  /// handler. tick() is called ten times per second. All run in the watchdog's thread, and the two functions
  /// must not throw.
  void start(std::function<void()> on_terminate, std::function<void()> tick);
  /// Ends the thread. Call before what the two functions use is destroyed.
  void stop();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run(const std::stop_token& stop);
  sigset_t before_{};
  std::function<void()> on_terminate_, tick_;
  std::jthread thread_;
};

}  // namespace ingot
