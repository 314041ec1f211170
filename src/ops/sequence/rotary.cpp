// See rotary.h.
#include "ops/sequence/rotary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

constexpr double kTwoPi = 0x1.921fb54442d18p+2;

/// cos and sin of 0 <= x <= 2^20 in plain double arithmetic. Cody-Waite reduction by pi / 2 in three parts,
/// of which the first two have 33 bits: their products with a quotient below 2^20 are exact. Then Taylor
/// series on [-pi/4, pi/4].
std::pair<double, double> cos_sin(double x) {
  constexpr double kPart1 = 0x1.921fb544p+0, kPart2 = 0x1.0b4611a6p-34, kPart3 = 0x1.3198a2e037073p-69;
  const double n = std::nearbyint(x * 0x1.45f306dc9c883p-1);
  const double r = ((x - n * kPart1) - n * kPart2) - n * kPart3, r2 = r * r;
  double s = 0, c = 0;
  for (int k = 18; k >= 2; k -= 2) {
    c = (1 - c) * r2 / ((k - 1) * k);
    s = (1 - s) * r2 / (k * (k + 1));
  }
  const double cosine = 1 - c, sine = r - r * s;
  switch (static_cast<int64_t>(n) % 4) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

struct OwnedTable {
  RotaryTable table;
  std::vector<double> coarse, fine;
};

using RuleKey = std::tuple<double, int64_t, RotaryKind, bool, double, double, double, double, double>;
RuleKey key_of(const RotaryRule& r) {
  return {r.theta, r.dims, r.kind, r.interleaved, r.factor, r.low, r.high, r.original_context, r.magnitude};
}

std::unique_ptr<OwnedTable> make_table(const RotaryRule& rule) {
  auto owned = std::make_unique<OwnedTable>();
  const int64_t pairs = rule.dims / 2, steps = RotaryTable::kSteps;
  std::vector<double> frequencies(static_cast<size_t>(pairs));
  rotary_frequencies(rule, frequencies.data());
  for (auto* list : {&owned->coarse, &owned->fine}) list->resize(static_cast<size_t>(steps * 2 * pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::abs(frequencies[static_cast<size_t>(i)]);
    const double direction = frequencies[static_cast<size_t>(i)] < 0 ? -1 : 1;
    for (int64_t k = 0; k < steps; ++k) {
      const auto cosine_at = static_cast<size_t>(k * 2 * pairs + i),
                 sine_at = cosine_at + static_cast<size_t>(pairs);
      const auto step = static_cast<double>(k);
      const auto [fine_cosine, fine_sine] = cos_sin(step * frequency);
      const auto [coarse_cosine, coarse_sine] = cos_sin(step * static_cast<double>(steps) * frequency);
      owned->fine[cosine_at] = fine_cosine;
      owned->fine[sine_at] = direction * fine_sine;
      owned->coarse[cosine_at] = rule.magnitude * coarse_cosine;
      owned->coarse[sine_at] = rule.magnitude * (direction * coarse_sine);
    }
  }
  owned->table = {pairs, rule.interleaved, owned->coarse.data(), owned->fine.data()};
  return owned;
}

/// Llama 3.1: long wavelengths are divided by the factor, short ones stay.
double llama3_frequency(const RotaryRule& r, double f) {
  const double turns = r.original_context * f / kTwoPi;
  if (turns < r.low) return f / r.factor;
  if (turns > r.high) return f;
  const double smooth = (turns - r.low) / (r.high - r.low);
  return (1 - smooth) * f / r.factor + smooth * f;
}

/// YaRN's ramp: the pair at which a plain rotation turns `turns` times in the original context.
double yarn_pair(const RotaryRule& r, double turns) {
  return static_cast<double>(r.dims) * std::log(r.original_context / (turns * kTwoPi)) /
         (2 * std::log(r.theta));
}

double yarn_frequency(const RotaryRule& r, int64_t pair, double f) {
  const double first = std::max(std::floor(yarn_pair(r, r.high)), 0.0);
  double last = std::min(std::ceil(yarn_pair(r, r.low)), static_cast<double>(r.dims - 1));
  if (first == last) last += 0.001;
  const double ramp = std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
  return f / r.factor * ramp + f * (1 - ramp);
}

/// modded-nanogpt: theta^-linspace(0, 1, pairs / 2), then zeros; the angles run backwards.
double half_truncated_frequency(const RotaryRule& r, int64_t pair) {
  const int64_t turning = r.dims / 4;
  if (pair >= turning) return 0;
  return -std::pow(r.theta,
                   turning > 1 ? -static_cast<double>(pair) / static_cast<double>(turning - 1) : 0.0);
}

}  // namespace

void rotary_frequencies(const RotaryRule& r, double* frequencies) {
  for (int64_t i = 0; i < r.dims / 2; ++i) {
    const double f = std::pow(r.theta, -2.0 * static_cast<double>(i) / static_cast<double>(r.dims));
    switch (r.kind) {
      case RotaryKind::plain:
        frequencies[i] = f;
        break;
      case RotaryKind::linear:
        frequencies[i] = f / r.factor;
        break;
      case RotaryKind::llama3:
        frequencies[i] = llama3_frequency(r, f);
        break;
      case RotaryKind::yarn:
        frequencies[i] = yarn_frequency(r, i, f);
        break;
      case RotaryKind::half_truncated:
        frequencies[i] = half_truncated_frequency(r, i);
        break;
    }
  }
}

const RotaryTable& rotary_table(const RotaryRule& rule) {
  INGOT_CHECK(rule.theta >= 1 && rule.dims >= 0 && rule.dims % 2 == 0 && rule.factor >= 1 &&
                  (rule.kind != RotaryKind::half_truncated || rule.dims % 4 == 0),
              "theta {}, {} rotary dimensions, factor {}", rule.theta, rule.dims, rule.factor);
  static std::mutex mutex;
  static std::map<RuleKey, std::unique_ptr<OwnedTable>> tables;
  const std::lock_guard lock(mutex);
  auto& owned = tables[key_of(rule)];
  if (owned == nullptr) owned = make_table(rule);
  return owned->table;
}

void check_positions(const int32_t* positions, int64_t count) {
  for (int64_t t = 0; t < count; ++t)
    if (positions[t] < 0 || positions[t] >= RotaryTable::kMaxPositions)
      fail("position {} of row {} is outside [0, {})", positions[t], t, RotaryTable::kMaxPositions);
}

}  // namespace ingot
