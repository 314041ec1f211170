// Pieces of work dealt to threads in turn: 0, n, 2n, ... to the first of n. A thread takes its own in order, so that it knows which comes
// next and can prepare for it; one that has none left takes the last of another's. Every piece is taken once. deal() is for one thread,
// take() for all at once.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

namespace ingot {

class PieceShares {
 public:
  static constexpr int64_t kNone = -1;
  struct Taken {
    int64_t piece = kNone;
    int64_t next = kNone;  ///< the own one after it, which another thread may still take
  };

  /// Pieces first .. last. Allocates only where there are more threads than before.
  void deal(int64_t first, int64_t last, int64_t threads) {
    if (threads > room_) shares_ = std::make_unique<Share[]>(static_cast<size_t>(threads)), room_ = threads;
    first_ = first, threads_ = threads;
    for (int64_t t = 0; t < threads; ++t)
      shares_[static_cast<size_t>(t)].left = range(0, static_cast<uint64_t>((last - first - t + threads - 1) / threads));
  }

  Taken take(int64_t thread) {
    for (int64_t other = 0; other < threads_; ++other) {
      const int64_t owner = (thread + other) % threads_;
      std::atomic<uint64_t>& left = shares_[static_cast<size_t>(owner)].left;
      uint64_t now = left.load(std::memory_order_relaxed);
      while (begin_of(now) < end_of(now)) {
        const uint64_t at = other == 0 ? begin_of(now) : end_of(now) - 1;
        const uint64_t rest = other == 0 ? range(at + 1, end_of(now)) : range(begin_of(now), at);
        if (!left.compare_exchange_weak(now, rest, std::memory_order_relaxed)) continue;
        const int64_t piece = first_ + static_cast<int64_t>(at) * threads_ + owner;
        return {piece, other == 0 && at + 1 < end_of(now) ? piece + threads_ : kNone};
      }
    }
    return {};
  }

 private:
  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};  ///< places in the share: the first in the low half, the end in the high half
  };
  static uint64_t range(uint64_t begin, uint64_t end) { return end << 32 | begin; }
  static uint64_t begin_of(uint64_t left) { return left & 0xFFFFFFFF; }
  static uint64_t end_of(uint64_t left) { return left >> 32; }

  std::unique_ptr<Share[]> shares_;
  int64_t room_ = 0, first_ = 0, threads_ = 0;
};

}  // namespace ingot
