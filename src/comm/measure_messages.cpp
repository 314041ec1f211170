// See measure_messages.h.
#include "comm/measure_messages.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/spread.h"

namespace ingot {
namespace {

constexpr int kMessageBatches = 7;
constexpr int kPairsWithFullTime = 12;
constexpr size_t kFewestFitted = 4;
constexpr double kGoodFit = 0.1, kWorstFitted = 0.25;

/// Messages of one pair; both of its ranks hold the buffer of the largest.
class Link {
 public:
  Link(Communicator& group, int from, int to, int64_t largest)
      : group_(group), sends_(group.rank() == from), other_(sends_ ? to : from), data_(floats(largest)) {}

  /// Mean seconds of a round trip, on the sender.
  double round_trips(int64_t bytes, int calls) {
    const Tensor message = Tensor::of(data_.data(), {static_cast<int64_t>(floats(bytes))}),
                 answer = Tensor::of(data_.data(), {0});
    const double begin = monotonic_seconds();
    for (int i = 0; i < calls; ++i) {
      if (sends_) group_.send(message, other_).wait();
      group_.recv(sends_ ? answer : message, other_).wait();
      if (!sends_) group_.send(answer, other_).wait();
    }
    return (monotonic_seconds() - begin) / calls;
  }

  /// The sender's number of calls.
  int agree(int calls) {
    auto number = static_cast<double>(calls);
    const Tensor t = Tensor::of(&number, {1});
    sends_ ? group_.send(t, other_).wait() : group_.recv(t, other_).wait();
    return static_cast<int>(number);
  }

  /// Seconds of a message of each size, on the sender; the first is empty. Sizes take turns, so that a
  /// disturbance hits all alike.
  std::vector<double> times_of(const std::vector<int64_t>& sizes, double seconds) {
    std::vector<int> calls;
    for (const int64_t bytes : sizes) {
      round_trips(bytes, 1);
      const double once = std::max(1e-7, round_trips(bytes, 1));
      calls.push_back(agree(static_cast<int>(std::clamp(seconds / kMessageBatches / once, 1.0, 1000.0))));
    }
    const auto trips =
        interleaved(kMessageBatches, sizes.size(), [&](size_t i) { return round_trips(sizes[i], calls[i]); });
    const double half = spread_of(trips[0]).median / 2;
    std::vector<double> times;
    for (const std::vector<double>& of_size : trips)
      times.push_back(std::max(half, spread_of(of_size).median - half));
    return times;
  }

 private:
  static size_t floats(int64_t bytes) { return static_cast<size_t>(bytes / 4); }

  Communicator& group_;
  const bool sends_;
  const int other_;
  std::vector<float> data_;
};

}  // namespace

double PairMessages::bandwidth() const {
  return static_cast<double>(times.back().bytes) / times.back().seconds;
}

std::vector<PairMessages> measure_messages(Communicator& group, const std::vector<int64_t>& bytes,
                                           double seconds) {
  const int ranks = std::min(group.size(), kPairedRanks), pairs = ranks * (ranks - 1);
  seconds *= std::min(1.0, static_cast<double>(kPairsWithFullTime) / std::max(1, pairs));
  std::vector<int64_t> sizes{0};
  for (const int64_t size : bytes) sizes.push_back(size / 4 * 4);
  std::vector<PairMessages> all;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      std::vector<double> times(sizes.size());
      if (group.rank() == from || group.rank() == to)
        times = Link(group, from, to, sizes.back()).times_of(sizes, seconds);
      group.broadcast(Tensor::of(times.data(), {static_cast<int64_t>(times.size())}), from).wait();
      PairMessages pair{from, to, {}};
      for (size_t i = 0; i < sizes.size(); ++i) pair.times.push_back({sizes[i], times[i]});
      all.push_back(std::move(pair));
    }
  return all;
}

MessageFit fit_messages(const std::vector<MessageTime>& times) {
  std::vector<TimePoint> points;
  for (const MessageTime& t : times) points.push_back({1, static_cast<double>(t.bytes), t.seconds});
  const auto of_run = [&](size_t begin, size_t count) {
    return MessageFit{fit_times(std::span(points).subspan(begin, count)), times[begin].bytes,
                      times[begin + count - 1].bytes};
  };
  for (size_t count = points.size(); count >= kFewestFitted; --count)
    for (size_t begin = 0; begin + count <= points.size(); ++begin) {
      const MessageFit run = of_run(begin, count);
      if (run.fit.residual <= kGoodFit && run.fit.most <= kWorstFitted) return run;
    }
  return of_run(0, points.size());
}

}  // namespace ingot
