// A thread beside the one that computes, for what a rank must do while that one is busy or stuck: on SIGTERM (the launcher
// ends the run, or Slurm takes the node) write down where the rank is, and end a call into the network that never returns.
#pragma once
#include <signal.h>

#include <functional>
#include <thread>

namespace ingot {

class Watchdog {
 public:
  /// Blocks SIGTERM in the calling thread, and so in the threads that are made later: those of the MPI library too.
  Watchdog();
  /// From now on the watchdog takes the signal, calls on_terminate(), and then lets the process's own handling happen (a
  /// handler runs in the watchdog's thread). tick() is called ten times a second. Both run in the watchdog's thread and
  /// must not throw.
  void start(std::function<void()> on_terminate, std::function<void()> tick);
  /// Ends the watch. Before what the two functions use goes.
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
