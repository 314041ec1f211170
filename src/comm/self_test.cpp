// See self_test.h.
#include "comm/self_test.h"

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "base/host_name.h"
#include "base/progress.h"
#include "comm/agree.h"

namespace ingot {
namespace {

constexpr int kPartners = 8, kRepeats = 3, kAttempts = 3;
constexpr double kSlow = 0.5;  // of the median: worth a warning

void sort_slowest_first(std::vector<RankSpeed>& speeds) {
  std::stable_sort(speeds.begin(), speeds.end(),
                   [](const auto& a, const auto& b) { return a.bandwidth < b.bandwidth; });
}

bool too_slow(const std::vector<RankSpeed>& speeds, double least) {
  return speeds.size() > 2 && speeds.front().bandwidth < least * speeds[speeds.size() / 2].bandwidth;
}

/// The better speed of each rank.
std::vector<RankSpeed> better(std::vector<RankSpeed> a, const std::vector<RankSpeed>& b) {
  for (RankSpeed& s : a)
    for (const RankSpeed& other : b)
      if (other.rank == s.rank) s.bandwidth = std::max(s.bandwidth, other.bandwidth);
  sort_slowest_first(a);
  return a;
}

}  // namespace

std::vector<RankSpeed> exchange_speeds(Communicator& group, int64_t bytes) {
  const int n = group.size();
  std::vector<uint8_t> out(static_cast<size_t>(bytes)), in(out.size());
  const Tensor to = Tensor::of(out.data(), {bytes}), from = Tensor::of(in.data(), {bytes});
  double best = 0;
  for (int round = 0; round < std::min(partner_rounds(n), kPartners); ++round) {
    const int partner = partner_of(group.rank(), n, round);
    group.barrier();
    for (int i = 0; i < kRepeats && partner >= 0; ++i) {
      const double begin = monotonic_seconds();
      Pending sent = group.send(to, partner);
      group.recv(from, partner).wait();
      sent.wait();
      best = std::max(best, 2.0 * static_cast<double>(bytes) / std::max(1e-9, monotonic_seconds() - begin));
    }
  }
  std::vector<double> all(static_cast<size_t>(n));
  group.all_gather(Tensor::of(&best, {1}), Tensor::of(all.data(), {n})).wait();
  std::vector<RankSpeed> speeds;
  for (int r = 0; r < n; ++r) speeds.push_back({r, all[static_cast<size_t>(r)]});
  sort_slowest_first(speeds);
  return speeds;
}

SelfTest judge_speeds(const std::vector<RankSpeed>& speeds, const std::vector<std::string>& hosts,
                      int64_t bytes, double least) {
  const RankSpeed& slowest = speeds.front();
  const double median = speeds[speeds.size() / 2].bandwidth;
  const std::string who =
      fmt::format("rank {} on '{}' exchanges {:.3g} GB/s with others, the median of {} ranks is {:.3g} GB/s",
                  slowest.rank, hosts[static_cast<size_t>(slowest.rank)], slowest.bandwidth / 1e9,
                  speeds.size(), median / 1e9);
  if (too_slow(speeds, least))
    throw Error(
        who,
        fmt::format(
            "look at that machine and its network, leave it out, or lower parallel.slowest_rank (now {})",
            least));
  SelfTest t;
  t.text = fmt::format("  self-test    ranks exchange {} at {:.3g} to {:.3g} GB/s; slowest: rank {} on '{}'",
                       format_bytes(static_cast<double>(bytes)), slowest.bandwidth / 1e9,
                       speeds.back().bandwidth / 1e9, slowest.rank, hosts[static_cast<size_t>(slowest.rank)]);
  if (too_slow(speeds, kSlow)) t.warning = who;
  return t;
}

SelfTest self_test(World& world, int64_t bytes, double least) {
  std::vector<int> everyone(static_cast<size_t>(world.ranks()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto group = world.group("self-test", everyone);
  const std::vector<std::string> hosts = all_gather_text(*group, host_name());
  std::vector<RankSpeed> speeds = exchange_speeds(*group, bytes);
  for (int attempt = 1; attempt < kAttempts && too_slow(speeds, least); ++attempt)
    speeds = better(speeds, exchange_speeds(*group, bytes));
  return judge_speeds(speeds, hosts, bytes, least);
}

}  // namespace ingot
