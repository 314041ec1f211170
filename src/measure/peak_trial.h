// Timing kernels as shares of the fp32 peak P, which is measured directly before and after each trial,
// because the clock rate of a machine drifts.
#pragma once
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/spread.h"
#include "device/machine/peak.h"

namespace ingot {

struct PeakTrial {
  double seconds = 0;      ///< mean of the calls
  double peak_gflops = 0;  ///< P, mean of before and after
};

/// Takes trials one after the other: the measurement after one is that before the next.
class PeakTimer {
 public:
  explicit PeakTimer(std::vector<double>& peaks) : peaks_(peaks), before_(fma_peak_gflops()) {}

  /// Calls `work` for `seconds` or longer. Not while other kernels run.
  PeakTrial operator()(double seconds, const std::function<void()>& work) {
    return trial_of(mean_call_seconds(seconds, work));
  }
  /// One call, right after `prepare`, whose time does not count.
  PeakTrial once(const std::function<void()>& prepare, const std::function<void()>& work) {
    prepare();
    const double begin = monotonic_seconds();
    work();
    return trial_of(monotonic_seconds() - begin);
  }

 private:
  PeakTrial trial_of(double seconds) {
    PeakTrial t{seconds, before_};
    peaks_.push_back(before_ = fma_peak_gflops());
    t.peak_gflops = (t.peak_gflops + before_) / 2;
    return t;
  }

  std::vector<double>& peaks_;  ///< gets every measurement after a trial, GFLOP/s
  double before_;
};

}  // namespace ingot
