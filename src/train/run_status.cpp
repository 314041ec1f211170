// See run_status.h.
#include "train/run_status.h"

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/host_name.h"
#include "base/log.h"
#include "train/run_failure.h"

namespace ingot {
namespace {

constexpr const char* kParts[] = {"data", "passes", "optimizer", "update", "records", "save", "replay"};

}  // namespace

RunStatus::RunStatus(FileSystem& fs, const std::string& folder, int rank, int64_t step, int64_t save_every)
    : fs_(fs), path_(fmt::format("{}/status/rank-{}.json", folder, rank)), start_(guard_start()) {
  fs_.create_folders(folder + "/status");
  told_ = {.rank = rank, .host = host_name(), .start_step = step, .save_every = save_every, .step = step};
  progressed_ = monotonic_seconds();
  write();
  thread_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      ended_.wait_for(lock, stop, std::chrono::duration<double>(kEvery), [] { return false; });
      lock.unlock();
      write();
      lock.lock();
    }
  });
}

RunStatus::~RunStatus() {
  thread_.request_stop();
  thread_.join();  // after its last file
}

void RunStatus::done(const Step& step) {
  const std::lock_guard lock(mutex_);
  told_.step = step.step;
  sums_.spike = sums_.spike || step.spike;
  ++sums_.step;
  sums_.seconds += step.seconds;
  sums_.wait_seconds += step.wait_seconds;
  sums_.busy_seconds += step.busy_seconds;
  progressed_ = monotonic_seconds();
}

void RunStatus::saved(double seconds) {
  const std::lock_guard lock(mutex_);
  told_.saved_seconds += seconds;
}

void RunStatus::enter(StepPart part) {
  const std::lock_guard lock(mutex_);
  part_ = part;
}

/// Without a sync: the file says what is so now, and is worth nothing after a power cut.
void RunStatus::write() {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (sums_.step > 0) {
      const auto steps = static_cast<double>(sums_.step);
      told_.step_seconds = sums_.seconds / steps;
      told_.busy_seconds = sums_.busy_seconds / steps;
      told_.data_wait = sums_.seconds > 0 ? sums_.wait_seconds / sums_.seconds : 0;
      told_.spike = sums_.spike;
      sums_ = {};
    }
    told_.part = kParts[static_cast<size_t>(part_)];
    told_.silent_seconds = monotonic_seconds() - progressed_;
    text = told_.json(start_);
  }
  try {
    const auto file = fs_.create(path_ + ".tmp");
    file->append(text.data(), text.size());
    file->close();
    fs_.rename(path_ + ".tmp", path_);
  } catch (const Error& e) {  // a full disk must not end a run because of this file
    if (!std::exchange(warned_, true)) log::warn("{}", e.what());
  }
}

}  // namespace ingot
