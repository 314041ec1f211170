// See rotary.h.
#include "ops/sequence/rotary.h"

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

std::unique_ptr<OwnedTable> make_table(double theta, int64_t rotary_dims) {
  auto owned = std::make_unique<OwnedTable>();
  const int64_t pairs = rotary_dims / 2, steps = RotaryTable::kSteps;
  for (auto* list : {&owned->coarse, &owned->fine}) list->resize(static_cast<size_t>(steps * 2 * pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dims));
    for (int64_t k = 0; k < steps; ++k) {
      const auto cosine_at = static_cast<size_t>(k * 2 * pairs + i),
                 sine_at = cosine_at + static_cast<size_t>(pairs);
      const auto step = static_cast<double>(k);
      std::tie(owned->fine[cosine_at], owned->fine[sine_at]) = cos_sin(step * frequency);
      std::tie(owned->coarse[cosine_at], owned->coarse[sine_at]) =
          cos_sin(step * static_cast<double>(steps) * frequency);
    }
  }
  owned->table = {pairs, owned->coarse.data(), owned->fine.data()};
  return owned;
}

}  // namespace

const RotaryTable& rotary_table(double theta, int64_t rotary_dims) {
  INGOT_CHECK(theta >= 1 && rotary_dims >= 0 && rotary_dims % 2 == 0, "theta {}, {} rotary dimensions", theta,
              rotary_dims);
  static std::mutex mutex;
  static std::map<std::pair<double, int64_t>, std::unique_ptr<OwnedTable>> tables;
  const std::lock_guard lock(mutex);
  auto& owned = tables[{theta, rotary_dims}];
  if (owned == nullptr) owned = make_table(theta, rotary_dims);
  return owned->table;
}

void check_positions(const int32_t* positions, int64_t count) {
  for (int64_t t = 0; t < count; ++t)
    if (positions[t] < 0 || positions[t] >= RotaryTable::kMaxPositions)
      fail("position {} of row {} is outside [0, {})", positions[t], t, RotaryTable::kMaxPositions);
}

}  // namespace ingot
