// The streams of one thread on the simulated device: queues of work, what each piece must wait for, and proof
// that it does. The proof is by what was asked for, not by what happened to run first: two accesses to the
// same bytes, one of them a write, must be in one stream or have a wait between them, however the work runs.
// Callers take turns.
#pragma once
#include <array>
#include <deque>
#include <exception>
#include <functional>
#include <random>
#include <span>

#include "device/device.h"

namespace ingot {

/// How far each stream is: of its pieces of work, numbered from 1, the last one meant.
using SimClock = std::array<int64_t, 4>;

class SimStreams {
 public:
  struct Range {
    const char* begin;
    int64_t bytes;
    bool is_written;
  };

  /// Work runs as soon as it is asked for; if `late`, when somebody waits for it or chance has it, in an
  /// order among the streams that the seed decides.
  SimStreams(bool late, uint64_t seed) : late_(late), random_(seed) {}

  /// Adds work that touches the ranges. InternalError if it could run beside work of another stream that it
  /// must not run beside. What it throws is kept, and other work does nothing from then on.
  void add(StreamRole stream, std::span<const Range> ranges, std::function<void()> run);
  /// Throws what work threw first since this was last called.
  void rethrow_failure();
  /// What the stream was asked for so far, and what that waits for.
  SimClock now(StreamRole stream) const;
  void wait(StreamRole stream, const SimClock& moment);
  /// Returns when all work of that moment has run. Whatever the thread asks for later comes after it.
  void synchronize(const SimClock& moment);
  /// InternalError if work of another stream on these bytes could run after what compute is asked for next.
  void require_over(const char* begin, int64_t bytes) const;
  /// Returns when all work has run.
  void run_all();
  /// The same; what comes then runs in that order.
  void set_order(bool late, uint64_t seed);
  /// Whether work on these bytes has not run.
  bool has_work_on(const char* begin, int64_t bytes) const;

 private:
  struct Work {
    SimClock needs;
    std::function<void()> run;
  };
  struct Access {
    Range range;
    size_t stream;
    int64_t number;
  };
  using Accesses = std::deque<Access>;

  /// The first access of the stream whose work has a number beyond this one.
  Accesses::const_iterator beyond(size_t stream, int64_t number) const;
  const Access* unordered(size_t stream, const SimClock& moment, const Range& range) const;
  bool is_over(const SimClock& moment) const;
  bool run_one();

  bool late_;
  std::mt19937_64 random_;
  std::array<std::deque<Work>, 4> queues_;
  std::array<SimClock, 4> moments_{};  ///< by stream: what its next work comes after
  SimClock host_{};                    ///< what the thread has waited for
  SimClock done_{};
  /// By stream, in its order: those that the thread has not waited for.
  std::array<Accesses, 4> accesses_;
  std::exception_ptr failure_;
};

}  // namespace ingot
