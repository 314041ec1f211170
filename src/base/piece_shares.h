// Pieces of work in runs, one for each thread: a thread takes its own in order, so that it knows which comes next and can prepare for it,
// and one that has none left takes the last of another's. The same runs of the same data time after time keep what a thread wrote in its
// own caches, which matters most where cores do not share one. Every piece is taken once. deal() is for one thread, take() for all at once.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

namespace ingot {

class PieceShares {
 public:
  static constexpr int64_t kNone = -1;
  static constexpr int64_t kMost = int64_t{1} << 32;  ///< pieces: fewer
  struct Taken {
    int64_t piece = kNone;
    int64_t next = kNone;  ///< the own one after it, which another thread may still take
  };

  /// Pieces first .. last, the runs about equally long. Allocates only where there are more threads than before.
  void deal(int64_t first, int64_t last, int64_t threads) {
    begin(first, threads);
    for (int64_t t = 0; t < threads; ++t)
      set_run(t, first + (last - first) * t / threads, first + (last - first) * (t + 1) / threads);
  }

  /// The same with runs of one's own: begin(), then each thread's.
  void begin(int64_t first, int64_t threads) {
    if (threads > room_) shares_ = std::make_unique<Share[]>(static_cast<size_t>(threads)), room_ = threads;
    first_ = first, threads_ = threads;
  }
  void set_run(int64_t thread, int64_t begin, int64_t end) {
    share(thread).store(range(static_cast<uint64_t>(begin - first_), static_cast<uint64_t>(end - first_)),
                        std::memory_order_relaxed);
  }

  Taken take(int64_t thread) {
    for (int64_t other = 0; other < threads_; ++other) {
      std::atomic<uint64_t>& left = share((thread + other) % threads_);
      uint64_t now = left.load(std::memory_order_relaxed);
      while (begin_of(now) < end_of(now)) {
        const uint64_t at = other == 0 ? begin_of(now) : end_of(now) - 1;
        const uint64_t rest = other == 0 ? range(at + 1, end_of(now)) : range(begin_of(now), at);
        if (!left.compare_exchange_weak(now, rest, std::memory_order_relaxed)) continue;
        const int64_t piece = first_ + static_cast<int64_t>(at);
        return {piece, other == 0 && at + 1 < end_of(now) ? piece + 1 : kNone};
      }
    }
    return {};
  }

 private:
  struct alignas(64) Share {
    std::atomic<uint64_t> left{
        0};  ///< places in the share: the first in the low half, the end in the high half
  };
  std::atomic<uint64_t>& share(int64_t thread) { return shares_[static_cast<size_t>(thread)].left; }
  static uint64_t range(uint64_t begin, uint64_t end) { return end << 32 | begin; }
  static uint64_t begin_of(uint64_t left) { return left & 0xFFFFFFFF; }
  static uint64_t end_of(uint64_t left) { return left >> 32; }

  std::unique_ptr<Share[]> shares_;
  int64_t room_ = 0, first_ = 0, threads_ = 0;
};

}  // namespace ingot
