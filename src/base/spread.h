// Repeated measurements: the median and extremes of their trials, and the order in which trials are taken.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ingot {

struct Spread {
  double median = 0, least = 0, most = 0;
  /// (most - least) / median; 0 where the median is not positive.
  double width() const { return median > 0 ? (most - least) / median : 0; }
};

/// Needs at least one value. The median of an even number of values is the mean of the middle two.
Spread spread_of(std::vector<double> values);

/// The spread of one number per trial; `value`: a function of a trial, or a pointer to a member.
template <class Trial, class Value>
Spread spread_over(const std::vector<Trial>& trials, Value&& value) {
  std::vector<double> values;
  for (const Trial& t : trials) values.push_back(std::invoke(value, t));
  return spread_of(std::move(values));
}

/// For nlohmann's JSON of any kind.
template <class Json>
void to_json(Json& j, const Spread& s) {
  j = Json{{"median", s.median}, {"least", s.least}, {"most", s.most}};
}

/// The width as text, e.g. "4 %".
std::string width_of(const Spread& spread);

/// Measures every subject `trials` times, interleaved (the first trial of each, then the second of each,
/// ...), so that a disturbance of the machine hits all subjects alike. `measure` gets the index of a subject;
/// returns the trials of each subject.
template <class Measure>
auto interleaved(int trials, size_t subjects, Measure&& measure) {
  std::vector<std::vector<decltype(measure(size_t{}))>> all(subjects);
  for (int trial = 0; trial < trials; ++trial)
    for (size_t i = 0; i < subjects; ++i) all[i].push_back(measure(i));
  return all;
}

/// Calls `work` once to warm up, then repeatedly for `seconds` or longer; returns the mean seconds of a call.
double mean_call_seconds(double seconds, const std::function<void()>& work);

}  // namespace ingot
