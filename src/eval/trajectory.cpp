// See trajectory.h.
#include "eval/trajectory.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "eval/task.h"

namespace ingot {
namespace {

constexpr size_t kLastPoints = 3;

ScoreCurve& curve_named(std::vector<ScoreCurve>& curves, const std::string& name) {
  for (ScoreCurve& c : curves)
    if (c.name == name) return c;
  ScoreCurve c{.name = name};
  c.higher_is_better = higher_is_better(name.substr(name.rfind('/') + 1)) && !name.ends_with("/loss");
  return curves.emplace_back(std::move(c));
}

/// The curve's value at `tokens`; nothing outside of what it spans.
std::optional<double> value_at(const ScoreCurve& c, double tokens) {
  if (c.tokens.empty() || tokens < c.tokens.front() || tokens > c.tokens.back()) return {};
  const auto right = std::lower_bound(c.tokens.begin(), c.tokens.end(), tokens);
  const auto i = static_cast<size_t>(right - c.tokens.begin());
  if (*right == tokens) return c.values[i];
  const double part = (tokens - c.tokens[i - 1]) / (c.tokens[i] - c.tokens[i - 1]);
  return c.values[i - 1] + part * (c.values[i] - c.values[i - 1]);
}

}  // namespace

std::vector<ScoreCurve> curves_of(const std::vector<MetricRow>& rows) {
  std::vector<ScoreCurve> curves;
  for (const MetricRow& row : rows) {
    const double* tokens = row.scalar("tokens");
    if (tokens == nullptr) continue;
    for (const auto& [name, value] : row.scalars) {
      const bool task =
          name.starts_with("task/") && !name.ends_with("_stderr") && !name.ends_with("seed_noise");
      if (!(task || (name.starts_with("val/") && !name.ends_with("/tokens"))) || !std::isfinite(value))
        continue;
      ScoreCurve& c = curve_named(curves, task ? name.substr(5) : name);
      c.tokens.push_back(*tokens);
      c.values.push_back(value);
      if (const double* error = row.scalar(name + "_stderr")) c.errors.push_back(*error);
    }
  }
  for (ScoreCurve& c : curves)
    if (c.errors.size() != c.values.size()) c.errors.clear();
  return curves;
}

std::vector<ScoreCurve> read_reference(const std::string& text, const std::string& path) {
  std::vector<ScoreCurve> curves;
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string row = text.substr(at, end - at);
    at = end + 1;
    ++line;
    if (row.ends_with('\r')) row.pop_back();
    if (row.empty()) continue;
    if (line == 1) {
      if (row == "score,tokens,value") continue;
      throw Error(fmt::format("'{}' begins with '{}'", path, row.substr(0, 60)),
                  "a reference is a run folder, or a table whose first line is: score,tokens,value");
    }
    const size_t first = row.find(','), second = row.find(',', first + 1);
    double tokens = 0, value = 0;
    const auto number = [](const char* begin, const char* last, double& out) {
      const auto [stop, error] = std::from_chars(begin, last, out);
      return error == std::errc() && stop == last && std::isfinite(out);
    };
    if (first == row.npos || second == row.npos || !number(&row[first + 1], &row[second], tokens) ||
        !number(row.data() + second + 1, row.data() + row.size(), value))
      fail("'{}' line {} is '{}', expected a name, tokens and a value", path, line, row.substr(0, 60));
    ScoreCurve& c = curve_named(curves, row.substr(0, first));
    if (!c.tokens.empty() && tokens <= c.tokens.back())
      fail("'{}' line {}: the tokens of '{}' do not ascend", path, line, c.name);
    c.tokens.push_back(tokens);
    c.values.push_back(value);
  }
  if (curves.empty()) fail("'{}' has no scores", path);
  return curves;
}

std::vector<Comparison> compare_curves(const std::vector<ScoreCurve>& run,
                                       const std::vector<ScoreCurve>& reference) {
  std::vector<Comparison> out;
  for (const ScoreCurve& mine : run) {
    const auto other =
        std::find_if(reference.begin(), reference.end(), [&](const auto& c) { return c.name == mine.name; });
    if (other == reference.end()) continue;
    Comparison c{.name = mine.name};
    std::vector<double> ahead, variance;
    for (size_t i = 0; i < mine.tokens.size(); ++i) {
      const auto there = value_at(*other, mine.tokens[i]);
      if (!there) continue;
      ++c.points;
      c.tokens = mine.tokens[i], c.value = mine.values[i], c.reference = *there;
      ahead.push_back((mine.higher_is_better ? 1 : -1) * (mine.values[i] - *there));
      const double error = mine.errors.empty() ? 0 : mine.errors[i];
      variance.push_back(error * error * (other->errors.empty() ? 1 : 2));  // as sure as the run is
    }
    if (c.points == 0) continue;
    const size_t last = std::min(kLastPoints, ahead.size());
    double error = 0;
    c.behind = true;
    for (size_t i = ahead.size() - last; i < ahead.size(); ++i) {
      c.ahead += ahead[i] / static_cast<double>(last);
      error += variance[i] / static_cast<double>(last * last);
      c.behind = c.behind && ahead[i] < 0;
    }
    c.behind = c.behind && -c.ahead > 2 * std::sqrt(error);
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace ingot
