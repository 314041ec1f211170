// Watches loss and gradient for runs that go wrong. Its state is small, saved with checkpoints, and a pure
// function of the steps seen.
#pragma once
#include <cstdint>
#include <string>

namespace ingot {

class LossWatch {
 public:
  enum class Verdict {
    fine,
    spike,
    diverged,  ///< a spike that lasts too long
    dead       ///< the gradient has been zero for too long: no weight changes any more
  };
  struct Limits {
    double sigma = 0;           ///< 0: nothing counts as a spike
    int64_t patience = 0;       ///< spikes in a row that are a divergence
    int64_t dead_patience = 0;  ///< steps in a row with gradient 0 that are a death; 0: never
  };
  explicit LossWatch(const Limits& limits) : limits_(limits) {}

  /// Takes a finite loss and the norm of its gradient. A loss more than sigma deviations, and more than 0.5
  /// nats, above the running mean is a spike and is left out of the mean: without the 0.5 nats, noise on a
  /// plateau would count.
  Verdict observe(int64_t step, double loss, double gradient_norm);

  /// The next losses are of something else: starts anew.
  void forget() { *this = LossWatch(limits_); }
  double mean() const { return mean_; }
  double deviation() const;
  int64_t spike_steps() const { return spike_steps_; }  ///< spikes in a row up to now
  int64_t dead_steps() const { return dead_steps_; }
  /// The step at which the last trouble began: its first spike, until `patience` fine steps have passed since
  /// the last one. 0: none.
  int64_t first_spike() const { return first_spike_; }
  std::string json() const;
  /// Throws Error where the text is not that of json().
  void restore(const std::string& json);

 private:
  static constexpr int64_t kWarmup = 30;
  static constexpr double kDecay = 0.98;
  Limits limits_;
  double mean_ = 0, variance_ = 0;
  int64_t seen_ = 0, spike_steps_ = 0;
  int64_t first_spike_ = 0, last_spike_ = 0, dead_steps_ = 0;
};

}  // namespace ingot
