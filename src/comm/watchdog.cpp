// See watchdog.h.
#include "comm/watchdog.h"

#include <ctime>
#include <utility>

namespace ingot {
namespace {

sigset_t terminate_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Watchdog::Watchdog() {
  const sigset_t terminate = terminate_signals();
  pthread_sigmask(SIG_BLOCK, &terminate, &before_);
}

void Watchdog::start(std::function<void()> on_terminate, std::function<void()> tick) {
  on_terminate_ = std::move(on_terminate);
  tick_ = std::move(tick);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Watchdog::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

Watchdog::~Watchdog() {
  stop();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Watchdog::run(const std::stop_token& stop) {
  const sigset_t terminate = terminate_signals();
  const timespec tenth{0, 100'000'000};
  while (!stop.stop_requested()) {
    if (sigtimedwait(&terminate, nullptr, &tenth) == SIGTERM) {
      on_terminate_();
      pthread_sigmask(SIG_UNBLOCK, &terminate, nullptr);
      raise(SIGTERM);
      pthread_sigmask(SIG_BLOCK, &terminate, nullptr);
    }
    tick_();
  }
}

}  // namespace ingot
