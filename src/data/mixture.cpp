// See mixture.h.
#include "data/mixture.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"

namespace ingot::data {
namespace {

__extension__ using Wide = unsigned __int128;
constexpr Wide kOne = Wide{1} << 64;
constexpr uint64_t kGoldenStep =
    0x9E3779B97F4A7C15u;  // 2^64 / golden ratio, odd: the sequence visits all 2^64 points

/// Sum over i in [0, n) of floor((step * i + start) / modulus), modulo 2^64. Euclid's algorithm on (modulus,
/// step).
uint64_t floor_sum(uint64_t n, Wide modulus, Wide step, Wide start) {
  uint64_t sum = 0;
  for (;;) {
    // n (n - 1) / 2 modulo 2^64: halve the even factor first.
    const uint64_t pairs = n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n;
    sum += pairs * static_cast<uint64_t>(step / modulus) + n * static_cast<uint64_t>(start / modulus);
    step %= modulus;
    start %= modulus;
    const Wide last = step * n + start;  // step < 2^64, n < 2^63: fits
    if (last < modulus) return sum;
    n = static_cast<uint64_t>(last / modulus);
    start = last % modulus;
    std::swap(modulus, step);
  }
}

}  // namespace

Mixture::Mixture(std::span<const double> weights, uint64_t seed)
    : offset_(Random(seed, RandomPurpose::mixture).bits64(0)) {
  if (weights.empty()) throw Error("the mixture has no sources", "name at least one data source");
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0)
      throw Error(fmt::format("weight {} of the mixture is {}, expected a number >= 0", i, weights[i]));
    sum += weights[i];
  }
  if (!(sum > 0) || !std::isfinite(sum))
    throw Error(fmt::format("the weights of the mixture sum to {}, expected a number > 0", sum));
  bounds_.push_back(0);
  double running = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    running += weights[i];
    const double scaled = std::ldexp(running / sum, 64);
    bounds_.push_back(std::max(bounds_.back(), scaled >= 0x1p64 ? kOne : static_cast<Wide>(scaled)));
  }
  // Rounding may leave a sliver at the end; it belongs to the last source that has a weight.
  for (size_t i = weights.size(); i > 0; --i) {
    bounds_[i] = kOne;
    if (weights[i - 1] > 0) break;
  }
}

double Mixture::share(size_t source) const {
  return std::ldexp(static_cast<double>(bounds_.at(source + 1) - bounds_.at(source)), -64);
}

size_t Mixture::source_of(int64_t n) const {
  INGOT_CHECK(n >= 0, "n = {}", n);
  const Wide point = offset_ + static_cast<uint64_t>(n) * kGoldenStep;  // wraps: modulo 2^64 is modulo 1
  const auto above = std::upper_bound(bounds_.begin(), bounds_.end(), point);
  return static_cast<size_t>(above - bounds_.begin()) - 1;
}

uint64_t Mixture::points_below(Wide bound, int64_t n) const {
  // [u mod 1 < b] = floor(u + 1) - floor(u + 1 - b), with everything scaled to 2^64.
  const auto count = static_cast<uint64_t>(n);
  return floor_sum(count, kOne, kGoldenStep, kOne + offset_) -
         floor_sum(count, kOne, kGoldenStep, kOne + offset_ - bound);
}

int64_t Mixture::count(size_t source, int64_t n) const {
  INGOT_CHECK(n >= 0 && source < size(), "n = {}, source = {}", n, source);
  if (n == 0) return 0;
  return static_cast<int64_t>(points_below(bounds_[source + 1], n) - points_below(bounds_[source], n));
}

std::vector<SourceUse> planned_use(std::span<const PlannedSource> sources,
                                   std::span<const PlannedPhase> phases, double epoch_limit) {
  std::vector<SourceUse> use(sources.size());
  for (size_t s = 0; s < sources.size(); ++s) {
    use[s].name = sources[s].name;
    use[s].available_tokens = static_cast<double>(sources[s].tokens);
  }
  for (const PlannedPhase& phase : phases) {
    if (phase.weights.size() != sources.size())
      fail("phase '{}' has {} weights for {} sources", phase.name, phase.weights.size(), sources.size());
    const Mixture mixture(phase.weights, 0);  // checks and normalises
    for (size_t s = 0; s < sources.size(); ++s)
      use[s].planned_tokens += mixture.share(s) * static_cast<double>(phase.tokens);
  }
  for (SourceUse& u : use) {
    if (u.planned_tokens > 0 && u.available_tokens <= 0)
      fail("source '{}' is empty but has a weight", u.name);
    u.epochs = u.planned_tokens > 0 ? u.planned_tokens / u.available_tokens : 0;
    u.repeats_too_often = u.epochs > epoch_limit;
  }
  return use;
}

std::string repetition_warning(std::span<const SourceUse> use, double epoch_limit) {
  std::string text;
  for (const SourceUse& u : use)
    if (u.repeats_too_often)
      text += fmt::format(
          "source '{}': the plan reads {:.4g} tokens of {:.4g}, {:.1f} epochs (limit {:.1f}); lower its "
          "weight or add data\n",
          u.name, u.planned_tokens, u.available_tokens, u.epochs, epoch_limit);
  return text;
}

}  // namespace ingot::data
