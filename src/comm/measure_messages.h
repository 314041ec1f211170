// Measures messages (send and receive) between the ranks of a world: time by size for every ordered pair, and
// the latency and bandwidth that fit it. Part of measure_comm() (comm/measure.h).
#pragma once
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/time_fit.h"

namespace ingot {

struct MessageTime {
  int64_t bytes = 0;
  double seconds = 0;  ///< from the start of the send until the receiver has the message
};

/// From one rank to another. No two ranks have the same clock, so the time of a message is that of a round
/// trip with an empty answer, less half a round trip of two empty messages.
struct PairMessages {
  int from = 0, to = 0;
  std::vector<MessageTime> times;  ///< by size, ascending; the first message is empty
  double latency_seconds() const { return times.front().seconds; }
  /// Bytes per second of the largest message.
  double bandwidth() const;
};

/// The ranks of a larger world that have pairs: the first ones.
inline constexpr int kPairedRanks = 16;

/// Every ordered pair of the group's first ranks, at most kPairedRanks, one pair at a time while the others
/// wait. `bytes`: ascending, rounded down to whole floats. `seconds`: of a size and pair, about; less where
/// more than a dozen pairs share the time. Called by all ranks, which get the same.
std::vector<PairMessages> measure_messages(Communicator& group, const std::vector<int64_t>& bytes,
                                           double seconds);

struct MessageFit {
  TimeFit fit;
  int64_t smallest = 0, largest = 0;  ///< bytes of the messages that it holds for
};
/// Of the longest run of four neighbouring sizes or more, the smallest first, for which the median residual
/// is within 10 % and the largest within 25 %: caches and the ways of a transport change the bandwidth by
/// size. Of all sizes where there is none.
MessageFit fit_messages(const std::vector<MessageTime>& times);

}  // namespace ingot
