// Prepares the next batches on a separate thread while the model trains on the current one.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "data/batch.h"

namespace ingot::data {

/// Calls produce(step) for step = first, first + 1, ... on its thread and returns the batches in that order.
/// Up to `depth` batches are ready in advance. One consumer. The destructor stops the thread after the batch
/// it is making.
class PrefetchLoader {
 public:
  /// produce must be safe to call from another thread (Sampler::batch is). depth >= 1.
  PrefetchLoader(std::function<Batch(int64_t step)> produce, int64_t first_step, int64_t depth = 2);
  ~PrefetchLoader();
  PrefetchLoader(const PrefetchLoader&) = delete;
  PrefetchLoader& operator=(const PrefetchLoader&) = delete;

  /// The next batch; waits for it where needed. An exception of produce is thrown here, at its step, and
  /// again at every later call.
  Batch next();
  /// The step that the next call returns.
  int64_t next_step() const { return next_step_; }
  /// Seconds that next() has spent waiting in total, that is, how long the data delayed the run.
  double waited_seconds() const { return waited_seconds_; }

 private:
  void run(const std::stop_token& stop, int64_t step);
  std::function<Batch(int64_t)> produce_;
  int64_t depth_;
  int64_t next_step_;
  double waited_seconds_ = 0;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Batch> ready_;    // guarded by mutex_
  std::exception_ptr failed_;  // guarded by mutex_; set after the last good batch was queued
  std::jthread thread_;        // last: it uses the members above
};

}  // namespace ingot::data
