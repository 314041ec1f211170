// See rank_drift.h.
#include "measure/rank_drift.h"

#include <cmath>
#include <numbers>

namespace ingot {
namespace {

constexpr double kDriftWindow = 0.005;
/// Of a processor while all ranks are busy: who has less shares it.
constexpr double kOwnCore = 0.75;

std::vector<const OpSpan*> computing(const StepSpan& step) {
  std::vector<const OpSpan*> ops;
  for (const OpSpan& op : step.ops)
    if (op.what != TimeOf::exchanges) ops.push_back(&op);
  return ops;
}

/// Over windows in which two ranks do the same.
struct Differences {
  double sum = 0;  ///< of differences over the root of the time
  int64_t windows = 0;

  /// False: the ranks run different ops.
  bool add(const StepSpan& a, const StepSpan& b) {
    const auto x = computing(a), y = computing(b);
    if (x.size() != y.size()) return false;
    double difference = 0, seconds = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i]->op != y[i]->op) return false;
      difference += x[i]->seconds() - y[i]->seconds();
      seconds += (x[i]->seconds() + y[i]->seconds()) / 2;
      if (seconds < kDriftWindow) continue;
      sum += std::fabs(difference) / std::sqrt(seconds), ++windows;
      difference = seconds = 0;
    }
    return true;
  }
};

/// The expected largest of n values of a standard normal distribution, by Simpson's rule.
double expected_largest(int n) {
  constexpr double kEnd = 8;
  constexpr int kSteps = 512;
  const auto of = [&](double x) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    return x * n * density * std::pow(std::erfc(-x / std::numbers::sqrt2) / 2, n - 1);
  };
  double sum = of(-kEnd) + of(kEnd);
  for (int i = 1; i < kSteps; ++i) sum += (i % 2 == 1 ? 4 : 2) * of(-kEnd + i * 2 * kEnd / kSteps);
  return sum * 2 * kEnd / kSteps / 3;
}

}  // namespace

double ranks_per_core(const RankProfile& rank) {
  if (rank.processor_share.empty()) return 1;
  const double share = spread_of(rank.processor_share).median;
  return share > 0 && share < kOwnCore ? 1 / share : 1;
}

double rank_drift(const ProfileReport& profile) {
  Differences d;
  for (size_t r = 0; r < profile.ranks.size(); ++r) {
    const RankProfile& rank = profile.ranks[r];
    if (ranks_per_core(rank) > 1) return 0;
    if (r == 0) continue;
    for (size_t s = 0; s < rank.steps.size(); ++s)
      if (!d.add(profile.ranks[r - 1].steps[s], rank.steps[s])) return 0;
  }
  // Of two values, the mean difference is 2 / sqrt(pi) of the standard deviation of each.
  return d.windows > 0 ? d.sum / static_cast<double>(d.windows) / std::numbers::inv_sqrtpi / 2 : 0;
}

double expected_wait(double drift, int ranks, double seconds) {
  return drift > 0 && ranks > 1 ? drift * expected_largest(ranks) * std::sqrt(seconds) : 0;
}

}  // namespace ingot
