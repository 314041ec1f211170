// What a guard shows Prometheus (`ingot guard --metrics`): published after each of its looks, made into a
// page by the server's thread. Thread-safe, but for publish() and count(), which are the guard's own
// thread's.
#pragma once
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "guard/guard.h"

namespace ingot::guard {

class GuardMetrics {
 public:
  /// An entry of the journal, in order, those of earlier guards too.
  void count(const Entry& entry);
  void publish(const Guard& guard);
  /// The page. Names are in docs/guard.md.
  std::string text() const;

 private:
  struct Counts {
    int64_t starts = 0, alerts = 0, questions = 0;
    std::map<std::string, int64_t> decisions;  ///< by rule
  };
  Counts counts_;
  mutable std::mutex mutex_;
  Counts shown_;  // guarded by mutex_, as all below
  Books books_;
  JobState job_ = JobState::absent;
  const char* state_ = "watching";
  double silence_ = 0, throughput_ = 1, published_ = 0;
  size_t excluded_ = 0;
};

}  // namespace ingot::guard
