// See loader.h.
#include "data/loader.h"

#include "base/clock.h"
#include "base/error.h"

namespace ingot::data {

PrefetchLoader::PrefetchLoader(std::function<Batch(int64_t)> produce, int64_t first_step, int64_t depth)
    : produce_(std::move(produce)), depth_(depth), next_step_(first_step) {
  INGOT_CHECK(depth >= 1, "depth = {}", depth);
  thread_ = std::jthread([this, first_step](const std::stop_token& stop) { run(stop, first_step); });
}

PrefetchLoader::~PrefetchLoader() = default;  // jthread asks the thread to stop, wakes its wait, and joins

void PrefetchLoader::run(const std::stop_token& stop, int64_t step) {
  for (;; ++step) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return static_cast<int64_t>(ready_.size()) < depth_; });
      if (stop.stop_requested()) return;
    }
    Batch batch;
    std::exception_ptr failed;
    try {
      batch = produce_(step);
    } catch (...) {
      failed = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failed_ = failed;
    if (!failed) ready_.push_back(std::move(batch));
    changed_.notify_all();
    if (failed) return;
  }
}

Batch PrefetchLoader::next() {
  std::unique_lock lock(mutex_);
  if (ready_.empty() && !failed_) {
    const double begin = monotonic_seconds();
    changed_.wait(lock, [&] { return !ready_.empty() || failed_; });
    waited_seconds_ += monotonic_seconds() - begin;
  }
  if (ready_.empty()) std::rethrow_exception(failed_);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  ++next_step_;
  changed_.notify_all();
  return batch;
}

}  // namespace ingot::data
