// See profile_plots.h.
#include "report/profile_plots.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "report/plot.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostBars = 12;

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
      segments[segment.empty() ? "no segment" : segment] += s;
    }
    const std::string facts =
        fmt::format("{} x {} tokens, {}, mean of {} steps{}", profile.at("batch").get<int64_t>(),
                    profile.at("length").get<int64_t>(), profile.at("precision").get<std::string>(),
                    profile.at("steps").get<int64_t>(),
                    ranks.size() > 1 ? fmt::format(" and {} ranks", ranks.size()) : "");
    return "<h2>Profile</h2><div class=grid2>" +
           draw_time_bars("A step by purpose", facts, purposes, step, kMostBars) +
           draw_time_bars("A step by op", "forward and backward, without waits", ops, step, kMostBars) +
           draw_time_bars("A step by segment", "forward and backward, without waits", segments, step,
                          kMostBars) +
           "</div>";
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: not a profile: {}", where, e.what()),
                "write it with `ingot profile RUN --json=" + where + "`, or remove it");
  }
}

}  // namespace ingot
