// See profile_plots.h.
#include "report/profile_plots.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "report/svg_plot.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostBars = 12;

/// Seconds of a rank's mean step by name, longest first; shares are of `step`.
std::string bars_of(const std::string& title, const std::string& subtitle,
                    const std::map<std::string, double>& seconds, double step) {
  const auto bar = [step](const std::string& name, double s) {
    return Bar{name, fmt::format("{:.1f} % · {}", step > 0 ? 100 * s / step : 0, format_seconds(s)), s};
  };
  std::vector<Bar> bars;
  for (const auto& [name, s] : seconds)
    if (s > 0) bars.push_back(bar(name, s));
  std::sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.value > b.value; });
  if (bars.size() > kMostBars) {
    double rest = 0;
    for (size_t i = kMostBars - 1; i < bars.size(); ++i) rest += bars[i].value;
    const std::string name = fmt::format("{} others", bars.size() - kMostBars + 1);
    bars.resize(kMostBars - 1);
    bars.push_back(bar(name, rest));
  }
  return bars.empty() ? "" : draw_bars(title, subtitle, bars);
}

}  // namespace

std::string profile_section(const std::string& text, const std::string& where) {
  if (text.empty()) return "";
  try {
    const Json profile = Json::parse(text);
    const auto& ranks = profile.at("ranks");
    const auto count = static_cast<double>(ranks.size());
    std::map<std::string, double> purposes, ops, segments;
    double step = 0;
    for (const Json& rank : ranks)
      for (const auto& [name, s] : rank.at("times").items())
        purposes[name] += s.get<double>() / count, step += s.get<double>() / count;
    const double parts = count * profile.at("steps").get<double>();
    for (const Json& cell : profile.at("cells")) {
      const double s = cell.at("seconds").get<double>() / parts;
      const std::string segment = cell.at("segment");
      ops[cell.at("op")] += s;
      segments[segment.empty() ? "outside of them" : segment] += s;
    }
    const std::string facts =
        fmt::format("{} x {} tokens, {}, mean of {} steps{}", profile.at("batch").get<int64_t>(),
                    profile.at("length").get<int64_t>(), profile.at("precision").get<std::string>(),
                    profile.at("steps").get<int64_t>(),
                    ranks.size() > 1 ? fmt::format(" and {} ranks", ranks.size()) : "");
    return "<h2>Profile</h2><div class=grid2>" + bars_of("A step by purpose", facts, purposes, step) +
           bars_of("A step by op", "forward and backward, without waits", ops, step) +
           bars_of("A step by segment", "forward and backward, without waits", segments, step) + "</div>";
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: this is no profile: {}", where, e.what()),
                "write it with `ingot profile RUN --json=" + where + "`, or remove it");
  }
}

}  // namespace ingot
