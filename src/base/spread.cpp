// See spread.h.
#include "base/spread.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace ingot {

Spread spread_of(std::vector<double> values) {
  INGOT_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

std::string width_of(const Spread& s) {
  return s.median > 0 ? fmt::format("{:.0f} %", 100 * s.width()) : "";
}

double mean_call_seconds(double seconds, const std::function<void()>& work) {
  work();
  int calls = 0;
  const double begin = monotonic_seconds();
  double end = begin;
  for (; calls == 0 || end - begin < seconds; ++calls) {
    work();
    end = monotonic_seconds();
  }
  return (end - begin) / calls;
}

}  // namespace ingot
