// What a guard shows Prometheus (`ingot guard --metrics`): published after each of its looks, made into a
// page by the server's thread. Thread-safe.
#pragma once
#include <map>
#include <mutex>
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
  mutable std::mutex mutex_;
  int64_t starts_ = 0, alerts_ = 0, questions_ = 0;  // guarded by mutex_, as all below
  std::map<std::string, int64_t> decisions_;         ///< by rule
  Books books_;
  JobState job_ = JobState::absent;
  const char* state_ = "watching";
  double silence_ = 0, throughput_ = 1, published_ = 0;
  size_t excluded_ = 0;
};

}  // namespace ingot::guard
