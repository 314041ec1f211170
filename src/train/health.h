// Watches the loss for spikes. Its state is small, saved with checkpoints, and a pure function of the losses
// seen.
#pragma once
#include <cstdint>
#include <string>

namespace ingot {

class LossWatch {
 public:
  enum class Verdict { fine, spike, diverged };
  /// sigma 0: nothing counts as a spike. patience: steps that a spike may last.
  LossWatch(double sigma, int64_t patience) : sigma_(sigma), patience_(patience) {}

  /// Takes the loss of a step. A loss more than sigma deviations, and more than 0.5 nats, above the running
  /// mean is a spike and is left out of the mean: without the 0.5 nats, noise on a plateau would count.
  /// `patience` spikes in a row are a divergence.
  Verdict observe(double loss);

  double mean() const { return mean_; }
  double deviation() const;
  int64_t spike_steps() const { return spike_steps_; }
  std::string json() const;
  /// Throws Error where the text is not that of json().
  void restore(const std::string& json);

 private:
  static constexpr int64_t kWarmup = 30;
  static constexpr double kDecay = 0.98;
  double sigma_;
  int64_t patience_;
  double mean_ = 0, variance_ = 0;
  int64_t seen_ = 0, spike_steps_ = 0;
};

}  // namespace ingot
