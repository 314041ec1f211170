// The middle and the ends of repeated measurements: what a table shows instead of a mean.
#pragma once
#include <string>
#include <vector>

namespace ingot {

struct Spread {
  double median = 0, least = 0, most = 0;
};

/// Of at least one value; of an even number the mean of the middle two.
Spread spread_of(std::vector<double> values);

/// For nlohmann's JSON of any kind.
template <class Json>
void to_json(Json& j, const Spread& s) {
  j = Json{{"median", s.median}, {"least", s.least}, {"most", s.most}};
}

/// (most - least) / median, e.g. "4 %".
std::string width_of(const Spread& spread);

}  // namespace ingot
