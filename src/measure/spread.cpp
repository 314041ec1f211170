// See spread.h.
#include "measure/spread.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {

Spread spread_of(std::vector<double> values) {
  INGOT_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

std::string width_of(const Spread& s) {
  return s.median > 0 ? fmt::format("{:.0f} %", 100 * (s.most - s.least) / s.median) : "";
}

}  // namespace ingot
