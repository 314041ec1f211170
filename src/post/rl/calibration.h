// Finds the difficulty at which a frozen policy solves half of an environment's problems, from few groups of
// rollouts: particles over the two parameters of a logistic success model ([ZAYA1-8B] §IV-B2).
//
//   p(d) = 1 / (1 + exp((d - mu) / s)),  mu ~ N(5, 10^2),  s ~ |N(2, 2^2)| + 1/4
//
// A round: a particle j is drawn by its weight and proposes the d at which it expects the success rate that
// tells most (1/2; one time in ten 1/4 or 3/4); k of G successes there multiply each weight by
// Binomial(k; G, p(d)). When the effective number of particles falls below half, they are drawn anew in
// proportion to their weights and moved a little. Not thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace ingot {

class DifficultyCalibration {
 public:
  static constexpr size_t kParticles = 256;

  /// All random numbers come from `random`.
  explicit DifficultyCalibration(const Random& random);
  /// The difficulty to try next, in [lowest, highest].
  int64_t propose(int64_t lowest, int64_t highest);
  void observe(int64_t difficulty, int64_t solved, int64_t tried);
  /// Mean over the particles of the difficulty at which half is solved.
  double half_point() const;

 private:
  struct Particle {
    double middle = 0, scale = 1, weight = 0;
    double rate(double difficulty) const;
  };
  double uniform() { return static_cast<double>(random_.uniform(next_++)); }
  size_t draw_particle();
  void resample();

  Random random_;
  uint64_t next_ = 0, next_normal_ = 0;
  std::vector<Particle> particles_;
};

}  // namespace ingot
