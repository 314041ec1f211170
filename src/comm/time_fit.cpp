// See time_fit.h.
#include "comm/time_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/spread.h"

namespace ingot {

TimeFit fit_times(std::span<const TimePoint> points) {
  // Of each point: a x latency + b x seconds a byte = 1.
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (const TimePoint& p : points) {
    const double a = p.latencies / p.seconds, b = p.bytes / p.seconds;
    aa += a * a, ab += a * b, bb += b * b, a1 += a, b1 += b;
  }
  INGOT_CHECK(bb > 0, "none of {} times is of bytes", points.size());
  const double determinant = aa * bb - ab * ab;
  const bool two_unknowns = determinant > 1e-9 * aa * bb;
  TimeFit fit;
  fit.latency_seconds = two_unknowns ? (a1 * bb - b1 * ab) / determinant : 0;
  fit.seconds_per_byte = two_unknowns ? (aa * b1 - ab * a1) / determinant : 0;
  if (fit.latency_seconds <= 0 || fit.seconds_per_byte <= 0)
    fit.latency_seconds = 0, fit.seconds_per_byte = b1 / bb;
  std::vector<double> off;
  for (const TimePoint& p : points)
    off.push_back(std::fabs(fit.seconds(p.latencies, p.bytes) / p.seconds - 1));
  fit.residual = spread_of(off).median, fit.most = spread_of(off).most;
  return fit;
}

}  // namespace ingot
