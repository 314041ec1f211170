// One line that shows how far a long task is: what, share done, recent speed, time left. A terminal redraws
// it in place at most ten times a second; a log file gets a plain line every ten seconds. Thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace ingot {

/// "1.50 GiB", "320 KiB", "17 B": sizes for people, in units of 1024.
std::string format_bytes(double bytes);
/// "1.2M", "340k", "17": counts for people.
std::string format_count(double count);
/// "8,840,488,784": exact counts for people.
std::string group_digits(int64_t value);
/// "2 h 05 m", "3 m 20 s", "12 s", "0.4 s", "84 ms".
std::string format_seconds(double seconds);

/// Speed in the recent past, in which a minute ago counts 37 % of now: what a person expects of the next
/// minutes. Not thread-safe.
class RecentSpeed {
 public:
  explicit RecentSpeed(double now = 0) : last_(now) {}
  /// `more` work is done since the last call, and it is `now` (monotonic seconds).
  void add(double now, double more);
  /// Work per second; 0 where no time has passed.
  double per_second() const { return seconds_ > 0 ? work_ / seconds_ : 0; }

 private:
  double last_, work_ = 0, seconds_ = 0;
};

class Progress {
 public:
  enum class Unit { items, bytes };
  /// Where lines go and what time it is; tests replace both.
  struct Sink {
    std::function<double()> now;                          ///< monotonic seconds
    std::function<void(const std::string&, bool)> write;  ///< text, "": none; true: the last line, to be kept
    double interval = 10;                                 ///< seconds between two lines
  };

  /// `total` 0: unknown; then neither the share nor the time left is shown. `what` is a present participle
  /// ("tokenizing").
  Progress(std::string what, int64_t total, Unit unit = Unit::items);
  Progress(std::string what, int64_t total, Unit unit, Sink sink);
  /// Removes the line when finish() was not called: what follows says why.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Sets the total work done so far; cheap enough for every item of a loop that takes microseconds.
  void update(int64_t done);
  void add(int64_t more) { update(done_.load(std::memory_order_relaxed) + more); }
  /// The last line: amount, time taken, mean speed; or that nothing was left to do.
  void finish();
  /// The line as it reads at this moment.
  std::string line() const;

 private:
  std::string amount(double value) const;
  std::string what_;
  int64_t total_;
  Unit unit_;
  Sink sink_;
  double start_;
  RecentSpeed speed_;  // guarded by mutex_, as is what it has counted
  int64_t counted_ = 0;
  std::atomic<int64_t> done_{0};
  std::atomic<double> next_;
  std::mutex mutex_;
  bool finished_ = false;
};

}  // namespace ingot
