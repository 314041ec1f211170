// See calibration.h.
#include "post/rl/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

/// Normal numbers have indices that uniform ones do not reach.
constexpr uint64_t kFirstNormal = uint64_t{1} << 32;

}  // namespace

double DifficultyCalibration::Particle::rate(double difficulty) const {
  return 1 / (1 + std::exp((difficulty - middle) / scale));
}

DifficultyCalibration::DifficultyCalibration(const Random& random)
    : random_(random), next_normal_(kFirstNormal), particles_(kParticles) {
  for (Particle& p : particles_) {
    p.middle = 5 + 10 * random_.normal(next_normal_++);
    p.scale = std::abs(2 + 2 * random_.normal(next_normal_++)) + 0.25;
    p.weight = 1.0 / static_cast<double>(kParticles);
  }
}

size_t DifficultyCalibration::draw_particle() {
  double at = uniform();
  for (size_t m = 0; m < kParticles; ++m) {
    at -= particles_[m].weight;
    if (at < 0) return m;
  }
  return kParticles - 1;
}

int64_t DifficultyCalibration::propose(int64_t lowest, int64_t highest) {
  const Particle& p = particles_[draw_particle()];
  double target = 0.5;
  if (const double u = uniform(); u < 0.1) target = u < 0.05 ? 0.25 : 0.75;
  const double d = std::round(p.middle + p.scale * std::log((1 - target) / target));
  return static_cast<int64_t>(std::clamp(d, static_cast<double>(lowest), static_cast<double>(highest)));
}

void DifficultyCalibration::observe(int64_t difficulty, int64_t solved, int64_t tried) {
  INGOT_CHECK(solved >= 0 && solved <= tried && tried > 0);
  double sum = 0, squares = 0;
  for (Particle& p : particles_) {  // the binomial coefficient is the same for all
    const double rate = std::clamp(p.rate(static_cast<double>(difficulty)), 1e-9, 1 - 1e-9);
    p.weight *= std::exp(static_cast<double>(solved) * std::log(rate) +
                         static_cast<double>(tried - solved) * std::log1p(-rate));
    p.weight = std::max(p.weight, 1e-300);  // an observation that no particle expects must not lose them all
    sum += p.weight;
  }
  for (Particle& p : particles_) {
    p.weight /= sum;
    squares += p.weight * p.weight;
  }
  if (1 / squares < static_cast<double>(kParticles) / 2) resample();
}

void DifficultyCalibration::resample() {
  std::vector<Particle> drawn;
  const double first = uniform();
  double until = 0;
  size_t m = 0;
  for (size_t i = 0; i < kParticles; ++i) {  // evenly spaced positions in the cumulated weights
    const double at = (static_cast<double>(i) + first) / static_cast<double>(kParticles);
    while (m + 1 < kParticles && until + particles_[m].weight <= at) until += particles_[m++].weight;
    drawn.push_back(particles_[m]);
  }
  double mean = 0, square = 0;
  for (const Particle& p : drawn) mean += p.middle, square += p.middle * p.middle;
  mean /= static_cast<double>(kParticles);
  const double deviation = std::sqrt(std::max(0.0, square / static_cast<double>(kParticles) - mean * mean));
  for (Particle& p : drawn) {
    p.middle += 0.2 * (deviation + 0.1) * random_.normal(next_normal_++);
    p.scale = std::max(0.25, p.scale * std::exp(0.1 * random_.normal(next_normal_++)));
    p.weight = 1.0 / static_cast<double>(kParticles);
  }
  particles_ = std::move(drawn);
}

double DifficultyCalibration::half_point() const {
  double mean = 0;
  for (const Particle& p : particles_) mean += p.weight * p.middle;
  return mean;
}

}  // namespace ingot
