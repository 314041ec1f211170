// See length_reward.h.
#include "post/rl/length_reward.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {

std::vector<double> length_bonuses(const LengthReward& rule, std::span<const double> rewards,
                                   std::span<const int64_t> lengths, double best) {
  INGOT_CHECK(rewards.size() == lengths.size());
  std::vector<double> bonuses(rewards.size(), 0.0);
  if (rewards.empty() || rule.coefficient == 0) return bonuses;
  const auto correct = [&](size_t i) { return rewards[i] >= 1; };
  double p = 0;
  int64_t shortest = -1;
  for (size_t i = 0; i < rewards.size(); ++i) {
    p += rewards[i] / static_cast<double>(rewards.size());
    if (correct(i) && (shortest < 0 || lengths[i] < shortest)) shortest = lengths[i];
  }
  if (!(p > 1.0 / static_cast<double>(rewards.size())) || !(p > best - rule.accuracy_tolerance))
    return bonuses;
  for (size_t i = 0; i < rewards.size(); ++i) {
    if (!correct(i)) continue;
    double lambda = 0.5;
    if (const int64_t over = lengths[i] - shortest; over > rule.tolerance) {
      const auto range = static_cast<double>(std::max<int64_t>(1, rule.longest - shortest));
      lambda -= std::clamp(static_cast<double>(over) / range, 0.0, 1.0);
    }
    bonuses[i] = rule.coefficient * p * lambda;
  }
  return bonuses;
}

double overlong_penalty(int64_t length, int64_t limit, int64_t margin) {
  if (margin <= 0 || length <= limit - margin) return 0;
  if (length >= limit) return -1;
  return static_cast<double>(limit - margin - length) / static_cast<double>(margin);
}

double BestPassRate::add(double pass_rate) {
  mean_ = groups_++ == 0 ? pass_rate : 0.9 * mean_ + 0.1 * pass_rate;
  return best_ = std::max(best_, mean_);
}

}  // namespace ingot
