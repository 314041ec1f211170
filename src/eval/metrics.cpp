// See metrics.h. Sums run from the first value to the last, as Python's sum() does.
#include "eval/metrics.h"

#include <cmath>
#include <map>

#include "base/error.h"

namespace ingot {

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double sample_deviation(std::span<const double> values) {
  const double m = mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::optional<double> mean_error(std::span<const double> values) {
  if (values.size() < 2) return {};
  return sample_deviation(values) / std::sqrt(static_cast<double>(values.size()));
}

double perplexity(std::span<const double> values) {
  return std::exp(-mean(values));
}

std::optional<double> bootstrapped_perplexity_error(std::span<const double> values) {
  if (values.size() < 2) return {};
  constexpr int kChunks = 100, kChunk = 1000;
  std::vector<double> results;
  results.reserve(size_t{kChunks} * kChunk);
  const auto n = static_cast<double>(values.size());
  for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    PythonRandom random(chunk);
    for (int i = 0; i < kChunk; ++i) {
      double sum = 0;
      for (size_t j = 0; j < values.size(); ++j) sum += values[static_cast<size_t>(random.random() * n)];
      results.push_back(std::exp(-(sum / n)));
    }
  }
  return sample_deviation(results);
}

static std::pair<double, double> sums_of(std::span<const std::pair<double, double>> values) {
  std::pair<double, double> sums{0, 0};
  for (const auto& [value, weight] : values) sums.first += value, sums.second += weight;
  return sums;
}

double weighted_perplexity(std::span<const std::pair<double, double>> values) {
  const auto [sum, weight] = sums_of(values);
  return std::exp(-(sum / weight));
}

double bits_per_unit(std::span<const std::pair<double, double>> values) {
  const auto [sum, weight] = sums_of(values);
  return -(sum / weight) / std::log(2.0);
}

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  INGOT_CHECK(0 <= c && c <= n && 1 <= k && k <= n, "n {}, c {}, k {}", n, c, k);
  if (n - c < k) return 1;
  double all_wrong = 1;  // the product of (1 - k / i) over i = n - c + 1 .. n
  for (int64_t i = n - c + 1; i <= n; ++i) all_wrong *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - all_wrong;
}

const std::string& majority(std::span<const std::string> answers) {
  INGOT_CHECK(!answers.empty());
  std::map<std::string, int> counts;
  for (const std::string& a : answers) ++counts[a];
  const std::string* best = &answers.front();
  for (const std::string& a : answers)
    if (counts[a] > counts[*best]) best = &a;
  return *best;
}

std::optional<double> seed_noise(std::span<const std::vector<double>> scores) {
  if (scores.empty() || scores.front().size() < 2) return {};
  std::vector<double> by_sample(scores.front().size(), 0);
  for (const std::vector<double>& row : scores)
    for (size_t s = 0; s < by_sample.size(); ++s) by_sample[s] += row[s] / static_cast<double>(scores.size());
  return sample_deviation(by_sample);
}

PythonRandom::PythonRandom(uint32_t seed) {
  // init_by_array with the one word `seed`, on top of the generator's fixed first state.
  state_[0] = 19650218u;
  const auto before = [&](uint32_t i) { return state_[i - 1] ^ (state_[i - 1] >> 30); };
  for (uint32_t i = 1; i < 624; ++i) state_[i] = 1812433253u * before(i) + i;
  uint32_t i = 1;
  const auto wrap = [&] {
    if (++i >= 624) state_[0] = state_[623], i = 1;
  };
  for (int k = 0; k < 624; ++k) state_[i] = (state_[i] ^ (before(i) * 1664525u)) + seed, wrap();
  for (int k = 0; k < 623; ++k) state_[i] = (state_[i] ^ (before(i) * 1566083941u)) - i, wrap();
  state_[0] = 0x80000000u;
}

uint32_t PythonRandom::next() {
  if (at_ == 624) {
    for (int i = 0; i < 624; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % 624] & 0x7fffffffu);
      state_[i] = state_[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0u);
    }
    at_ = 0;
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

double PythonRandom::random() {
  const uint32_t a = next() >> 5, b = next() >> 6;
  return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
}

}  // namespace ingot
