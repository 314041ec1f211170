// See sim_streams.h.
#include "device/sim/sim_streams.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/sim/sim_names.h"

namespace ingot {
namespace {

void advance(SimClock& moment, const SimClock& to) {
  for (size_t i = 0; i < moment.size(); ++i) moment[i] = std::max(moment[i], to[i]);
}

bool overlap(const SimStreams::Range& a, const char* begin, int64_t bytes) {
  return a.begin < begin + bytes && begin < a.begin + a.bytes;
}

constexpr const char* verb(bool writes) {
  return writes ? "write" : "read";
}

template <class Access>
const char* stream_of(const Access& a) {
  return name_of(static_cast<StreamRole>(a.stream));
}

}  // namespace

SimStreams::Accesses::const_iterator SimStreams::beyond(size_t stream, int64_t number) const {
  const Accesses& list = accesses_[stream];
  return std::upper_bound(list.begin(), list.end(), number,
                          [](int64_t n, const Access& a) { return n < a.number; });
}

/// An access to the range by another stream, which work of `stream` that comes after `moment` is not ordered
/// with; nullptr if there is none.
const SimStreams::Access* SimStreams::unordered(size_t stream, const SimClock& moment,
                                                const Range& range) const {
  for (size_t other = 0; other < accesses_.size(); ++other)
    for (auto a = beyond(other, moment[other]); other != stream && a != accesses_[other].end(); ++a)
      if ((a->range.is_written || range.is_written) && overlap(a->range, range.begin, range.bytes))
        return &*a;
  return nullptr;
}

void SimStreams::add(StreamRole stream, std::span<const Range> ranges, std::function<void()> run) {
  const auto s = static_cast<size_t>(stream);
  SimClock& moment = moments_[s];
  advance(moment, host_);
  for (const Range& range : ranges) {
    const Access* const a = unordered(s, moment, range);
    INGOT_CHECK(
        a == nullptr,
        "stream {} would {} memory of device 'sim' beside the {} that stream {} was asked for: {}. Let it "
        "wait for an event recorded after that",
        name_of(stream), verb(range.is_written), verb(a->range.is_written), stream_of(*a),
        describe_sim_memory(std::max(range.begin, a->range.begin)));
  }
  ++moment[s];
  for (const Range& range : ranges) accesses_[s].push_back({range, s, moment[s]});
  queues_[s].push_back({moment, std::move(run)});
  if (!late_) {
    while (!is_over(moment)) run_one();
  } else if (random_() % 4 == 0) {
    run_one();
  }
}

SimClock SimStreams::now(StreamRole stream) const {
  SimClock moment = moments_[static_cast<size_t>(stream)];
  advance(moment, host_);
  return moment;
}

void SimStreams::wait(StreamRole stream, const SimClock& moment) {
  advance(moments_[static_cast<size_t>(stream)], moment);
}

bool SimStreams::is_over(const SimClock& moment) const {
  for (size_t i = 0; i < moment.size(); ++i)
    if (done_[i] < moment[i]) return false;
  return true;
}

/// Runs the first work of a stream, any that waits for nothing. False if nothing is left.
bool SimStreams::run_one() {
  std::array<size_t, 4> ready{};
  size_t n = 0;
  for (size_t s = 0; s < queues_.size(); ++s) {
    if (queues_[s].empty()) continue;
    SimClock needs = queues_[s].front().needs;
    --needs[s];
    if (is_over(needs)) ready[n++] = s;
  }
  if (n == 0) return false;
  const size_t s = ready[n == 1 ? 0 : random_() % n];
  const std::function<void()> run = std::move(queues_[s].front().run);
  queues_[s].pop_front();
  ++done_[s];
  if (failure_) return true;
  try {
    run();
  } catch (...) {
    failure_ = std::current_exception();
  }
  return true;
}

void SimStreams::synchronize(const SimClock& moment) {
  while (!is_over(moment)) INGOT_CHECK(run_one(), "a stream waits for work that nobody asked for");
  advance(host_, moment);
  for (size_t s = 0; s < accesses_.size(); ++s) accesses_[s].erase(accesses_[s].begin(), beyond(s, host_[s]));
}

void SimStreams::rethrow_failure() {
  if (!failure_) return;
  run_all();  // what was asked for until now does nothing
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void SimStreams::run_all() {
  for (const SimClock& moment : moments_) synchronize(moment);
}

void SimStreams::set_order(bool late, uint64_t seed) {
  run_all();
  late_ = late;
  random_.seed(seed);
}

void SimStreams::require_over(const char* begin, int64_t bytes) const {
  constexpr StreamRole compute = StreamRole::compute;
  const Access* const a = unordered(static_cast<size_t>(compute), now(compute), {begin, bytes, true});
  INGOT_CHECK(
      a == nullptr,
      "memory of device 'sim' was given back before the {} that stream {} was asked for is over: {}. Wait "
      "for an event recorded after it",
      verb(a->range.is_written), stream_of(*a), describe_sim_memory(std::max(begin, a->range.begin)));
}

bool SimStreams::has_work_on(const char* begin, int64_t bytes) const {
  for (size_t s = 0; s < accesses_.size(); ++s)
    if (std::any_of(beyond(s, done_[s]), accesses_[s].end(),
                    [&](const Access& a) { return overlap(a.range, begin, bytes); }))
      return true;
  return false;
}

}  // namespace ingot
