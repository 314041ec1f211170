// The alpha-beta model of communication: a time is so many latencies (alpha) and so many bytes times the
// seconds of one (beta, one over the bandwidth), fitted to measurements. Pure functions.
#pragma once
#include <span>

namespace ingot {

struct TimePoint {
  double latencies = 1;  ///< how often the latency is paid
  double bytes = 0;
  double seconds = 0;  ///< measured, positive
};

struct TimeFit {
  double latency_seconds = 0;   ///< alpha; 0 where none can be seen
  double seconds_per_byte = 0;  ///< beta
  double residual = 0;          ///< median share by which a measured time differs from the model's
  double most = 0;              ///< the largest such share
  double seconds(double latencies, double bytes) const {
    return latencies * latency_seconds + bytes * seconds_per_byte;
  }
};

/// Least squares of relative errors, so that short and long times count alike. Some point must have bytes.
TimeFit fit_times(std::span<const TimePoint> points);

}  // namespace ingot
