// See measure.h.
#include "comm/measure.h"

#include <algorithm>

#include "base/clock.h"

namespace ingot {
namespace {

constexpr int kBatches = 5;
constexpr int64_t kColdBytes = int64_t{64} << 20;  ///< that a rank reads, and as many that it writes
constexpr int64_t kPairBytes = int64_t{1} << 20;
constexpr CommKind kKinds[] = {CommKind::all_reduce, CommKind::reduce_scatter, CommKind::all_gather,
                               CommKind::broadcast,  CommKind::all_to_all,     CommKind::barrier};

double largest(Communicator& c, double value) {
  std::vector<double> all(static_cast<size_t>(c.size()));
  c.all_gather(Tensor::of(&value, {1}), Tensor::of(all.data(), {c.size()})).wait();
  return *std::max_element(all.begin(), all.end());
}

/// What operations read and write.
struct Memory {
  Memory(int64_t bytes, bool walks) : from(static_cast<size_t>(bytes / 4)), to(from.size()), walks(walks) {}
  std::vector<float> from, to;
  bool walks;  ///< a call uses what lies behind that of the call before
};

/// One operation on fp32 tensors made of `rows` elements for each rank.
class Subject {
 public:
  Subject(Communicator& c, CommKind kind, int64_t rows, Memory& memory)
      : c_(c), kind_(kind), rows_(rows), memory_(memory), split_(static_cast<size_t>(c.size()), rows) {}

  void operator()() {
    const int64_t all = rows_ * c_.size();
    if (!memory_.walks || next_ + all > static_cast<int64_t>(memory_.from.size())) next_ = 0;
    const Tensor a = Tensor::of(memory_.from.data() + next_, {all}),
                 b = Tensor::of(memory_.to.data() + next_, {all});
    next_ += all;
    switch (kind_) {
      case CommKind::all_reduce:
        return c_.all_reduce(a, b).wait();
      case CommKind::reduce_scatter:
        return c_.reduce_scatter(a, b.slice(0, rows_)).wait();
      case CommKind::all_gather:
        return c_.all_gather(a.slice(0, rows_), b).wait();
      case CommKind::broadcast:
        return c_.broadcast(a, 0).wait();
      case CommKind::all_to_all:
        return c_.all_to_all(a, split_, b, split_).wait();
      default:
        return c_.barrier();
    }
  }

 private:
  Communicator& c_;
  CommKind kind_;
  int64_t rows_, next_ = 0;
  Memory& memory_;
  std::vector<int64_t> split_;
};

/// Seconds of one call. Every rank makes the same number of calls, which the first times of the slowest rank
/// decide.
template <class Call>
double time_of(Communicator& c, double seconds, Call&& call) {
  call();
  c.barrier();
  double begin = monotonic_seconds();
  call();
  const double once = std::max(1e-7, largest(c, monotonic_seconds() - begin));
  const int calls = static_cast<int>(std::clamp(seconds / kBatches / once, 1.0, 1000.0));
  std::vector<double> means;
  for (int batch = 0; batch < kBatches; ++batch) {
    c.barrier();
    begin = monotonic_seconds();
    for (int i = 0; i < calls; ++i) call();
    means.push_back(largest(c, (monotonic_seconds() - begin) / calls));
  }
  std::nth_element(means.begin(), means.begin() + kBatches / 2, means.end());
  return means[kBatches / 2];
}

double bus_factor(CommKind kind, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  switch (kind) {
    case CommKind::all_reduce:
      return 2 * share;
    case CommKind::reduce_scatter:
    case CommKind::all_gather:
    case CommKind::all_to_all:
      return share;
    default:
      return 1;
  }
}

int64_t rows_of(const Communicator& c, int64_t size) {
  return std::max<int64_t>(1, size / 4 / c.size());
}

CommMeasurement measure_kind(Communicator& c, CommKind kind, int64_t size, double seconds, Memory& memory) {
  const int64_t rows = kind == CommKind::barrier ? 0 : rows_of(c, size);
  Subject subject(c, kind, rows, memory);
  CommMeasurement m{kind, c.size(), rows * 4 * c.size(), time_of(c, seconds, subject), 0};
  m.bus_bandwidth = static_cast<double>(m.bytes) / m.seconds * bus_factor(kind, c.size());
  return m;
}

void measure_group(Communicator& c, const CommMeasureOptions& options, std::vector<CommMeasurement>& out) {
  const int64_t largest = 4 * c.size() * rows_of(c, options.bytes.back());
  Memory memory(options.cold ? std::max(kColdBytes, largest) : largest, options.cold);
  for (const CommKind kind : kKinds)
    for (const int64_t size : options.bytes) {
      if (kind == CommKind::barrier && size != options.bytes.front()) continue;
      out.push_back(measure_kind(c, kind, size, options.seconds, memory));
    }
}

/// Every rank exchanges with every other.
std::vector<RankSpeed> measure_speeds(Communicator& c, double seconds) {
  const int n = c.size();
  std::vector<float> out(kPairBytes / 4), in(out.size());
  const Tensor to = Tensor::of(out.data(), {static_cast<int64_t>(out.size())}),
               from = Tensor::of(in.data(), to.shape());
  double sum = 0;
  for (int round = 0; round < partner_rounds(n); ++round) {
    const int partner = partner_of(c.rank(), n, round);
    const auto exchange = [&] {
      if (partner < 0) return;
      Pending sent = c.send(to, partner);
      c.recv(from, partner).wait();
      sent.wait();
    };
    exchange();
    c.barrier();
    const int calls = std::max(1, static_cast<int>(seconds / 1e-3));
    const double begin = monotonic_seconds();
    for (int i = 0; i < calls; ++i) exchange();
    if (partner >= 0) sum += 2.0 * kPairBytes * calls / (monotonic_seconds() - begin);
    c.barrier();
  }
  const double mine = sum / (n - 1);
  std::vector<double> all(static_cast<size_t>(n));
  c.all_gather(Tensor::of(&mine, {1}), Tensor::of(all.data(), {n})).wait();
  std::vector<RankSpeed> speeds;
  for (int r = 0; r < n; ++r) speeds.push_back({r, all[static_cast<size_t>(r)]});
  std::stable_sort(speeds.begin(), speeds.end(),
                   [](const auto& a, const auto& b) { return a.bandwidth < b.bandwidth; });
  return speeds;
}

}  // namespace

int partner_rounds(int ranks) {
  return ranks + ranks % 2 - 1;
}

/// The circle method for round-robin pairs; with an odd number of ranks the fixed position is empty.
int partner_of(int rank, int ranks, int round) {
  const int last = partner_rounds(ranks), across = (round - rank + last) % last;
  const int partner = rank == last ? round * ((last + 1) / 2) % last : across == rank ? last : across;
  return partner < ranks ? partner : -1;
}

CommReport measure_comm(World& world, const CommMeasureOptions& options) {
  std::vector<int> everyone;
  for (int r = 0; r < world.ranks(); ++r) everyone.push_back(r);
  const auto all = world.group("measure all", everyone);
  CommReport report;
  for (const int n : options.ranks) {
    INGOT_CHECK(n >= 2 && n <= world.ranks(), "a group of {} ranks in a world of {}", n, world.ranks());
    if (world.rank() < n) {
      const auto c = world.group(fmt::format("measure {}", n), {everyone.begin(), everyone.begin() + n});
      measure_group(*c, options, report.measurements);
    }
    all->barrier();
  }
  // Rank 0 was in every group; the others copy its numbers.
  std::vector<double> numbers{static_cast<double>(report.measurements.size())};
  all->broadcast(Tensor::of(numbers.data(), {1}), 0).wait();
  const auto count = static_cast<size_t>(numbers[0]);
  static_assert(std::is_trivially_copyable_v<CommMeasurement>);
  report.measurements.resize(count);
  const auto bytes = static_cast<int64_t>(count * sizeof(CommMeasurement));
  all->broadcast(Tensor::of(reinterpret_cast<uint8_t*>(report.measurements.data()), {bytes}), 0).wait();
  if (options.messages) report.pairs = measure_messages(*all, options.bytes, options.seconds);
  if (world.ranks() > 1) report.speeds = measure_speeds(*all, options.seconds);
  return report;
}

int64_t suggested_bucket(const CommReport& report, int ranks) {
  double best = 0;
  for (const CommMeasurement& m : report.measurements)
    if (m.kind == CommKind::reduce_scatter && m.ranks == ranks) best = std::max(best, m.bus_bandwidth);
  for (const CommMeasurement& m : report.measurements)
    if (m.kind == CommKind::reduce_scatter && m.ranks == ranks && m.bus_bandwidth >= 0.9 * best)
      return m.bytes;
  return 0;
}

int64_t measure_bucket(Communicator& group, double seconds) {
  constexpr int64_t kFirst = int64_t{64} << 10, kLast = int64_t{64} << 20;
  if (group.size() == 1) return 0;
  int sizes = 0;
  for (int64_t size = kFirst; size <= kLast; size *= 2) ++sizes;
  CommReport report;
  Memory memory(4 * group.size() * rows_of(group, kLast), false);
  for (int64_t size = kFirst; size <= kLast; size *= 2)
    report.measurements.push_back(
        measure_kind(group, CommKind::reduce_scatter, size, seconds / sizes, memory));
  auto bucket = static_cast<double>(suggested_bucket(report, group.size()));
  group.broadcast(Tensor::of(&bucket, {1}), 0).wait();
  return static_cast<int64_t>(bucket);
}

}  // namespace ingot
