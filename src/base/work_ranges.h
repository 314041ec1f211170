// Items 0 .. n divided among threads as contiguous ranges. A thread takes its own items in order, so it knows
// the next one and can prepare for it; when it has none left, it takes the last item of another's range.
// Repeating the same ranges over the same data keeps what a thread wrote in its own caches. Every item is
// taken once. One thread calls begin(), set_range() and deal(); all threads may call take() at once.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

namespace ingot {

class WorkRanges {
 public:
  static constexpr int64_t kNone = -1;
  static constexpr int64_t kMaxItems = int64_t{1} << 32;  ///< fewer than this
  struct Taken {
    int64_t item = kNone;
    int64_t next = kNone;  ///< the thread's own next item, which another thread may still take
  };

  /// Items first .. last in about equal ranges. Allocates only where there are more threads than before.
  void deal(int64_t first, int64_t last, int64_t threads) {
    begin(first, threads);
    for (int64_t t = 0; t < threads; ++t)
      set_range(t, first + (last - first) * t / threads, first + (last - first) * (t + 1) / threads);
  }

  /// As deal(), with ranges of the caller's choice: begin(), then set_range() of each thread.
  void begin(int64_t first, int64_t threads) {
    if (threads > capacity_)
      ranges_ = std::make_unique<Range[]>(static_cast<size_t>(threads)), capacity_ = threads;
    first_ = first, threads_ = threads;
  }
  void set_range(int64_t thread, int64_t begin, int64_t end) {
    left(thread).store(pack(static_cast<uint64_t>(begin - first_), static_cast<uint64_t>(end - first_)),
                       std::memory_order_relaxed);
  }

  Taken take(int64_t thread) {
    for (int64_t other = 0; other < threads_; ++other) {
      std::atomic<uint64_t>& left = this->left((thread + other) % threads_);
      uint64_t now = left.load(std::memory_order_relaxed);
      while (begin_of(now) < end_of(now)) {
        const uint64_t index = other == 0 ? begin_of(now) : end_of(now) - 1;
        const uint64_t rest = other == 0 ? pack(index + 1, end_of(now)) : pack(begin_of(now), index);
        if (!left.compare_exchange_weak(now, rest, std::memory_order_relaxed)) continue;
        const int64_t item = first_ + static_cast<int64_t>(index);
        return {item, other == 0 && index + 1 < end_of(now) ? item + 1 : kNone};
      }
    }
    return {};
  }

 private:
  struct alignas(64) Range {
    std::atomic<uint64_t> left{0};  ///< begin in the low half, end in the high half
  };
  std::atomic<uint64_t>& left(int64_t thread) { return ranges_[static_cast<size_t>(thread)].left; }
  static uint64_t pack(uint64_t begin, uint64_t end) { return end << 32 | begin; }
  static uint64_t begin_of(uint64_t left) { return left & 0xFFFFFFFF; }
  static uint64_t end_of(uint64_t left) { return left >> 32; }

  std::unique_ptr<Range[]> ranges_;
  int64_t capacity_ = 0, first_ = 0, threads_ = 0;
};

}  // namespace ingot
