// See advantage.h.
#include "post/rl/advantage.h"

#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

void require_finite(std::span<const double> values, const char* what) {
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw Error(fmt::format("the {} of rollout {} of a group is {}", what, i, values[i]),
                  "rewards are finite numbers: mend the environment's verifier");
}

}  // namespace

std::vector<double> advantages(AdvantageKind kind, std::span<const double> rewards,
                               std::span<const double> bonuses) {
  INGOT_CHECK(bonuses.empty() || bonuses.size() == rewards.size());
  require_finite(rewards, "reward");
  require_finite(bonuses, "bonus");
  std::vector<double> score(rewards.begin(), rewards.end());
  for (size_t i = 0; i < bonuses.size(); ++i) score[i] += bonuses[i];
  if (kind == AdvantageKind::reinforce || score.empty()) return score;
  const auto n = static_cast<double>(score.size());
  if (score.size() == 1) return {0};
  const double mean = mean_of(score);
  double scale = 1;
  switch (kind) {
    case AdvantageKind::reinforce:
    case AdvantageKind::dr_grpo:
      break;
    case AdvantageKind::rloo:  // s_i - (n mean - s_i) / (n - 1)
      scale = n / (n - 1);
      break;
    case AdvantageKind::grpo: {
      double squares = 0;
      for (const double s : score) squares += (s - mean) * (s - mean);
      scale = 1 / (std::sqrt(squares / (n - 1)) + 1e-6);
      break;
    }
    case AdvantageKind::maxrl: {
      const double solved = mean_of(rewards);
      scale = solved == 0 ? 0 : 1 / solved;
      break;
    }
  }
  for (double& s : score) s = (s - mean) * scale;
  return score;
}

bool has_signal(std::span<const double> rewards) {
  for (const double r : rewards)
    if (r != rewards.front()) return true;
  return false;
}

}  // namespace ingot
