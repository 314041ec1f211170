// See plot.h.
#include "report/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/progress.h"

namespace ingot {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A line reduced to buckets of equally many points.
struct Points {
  std::vector<double> x, mean, low, high;
};

Points reduce(const PlotSeries& series, size_t most) {
  Points out;
  const size_t n = std::min(series.x.size(), series.y.size());
  const size_t bucket = (n + most - 1) / most;
  for (size_t begin = 0; begin < n; begin += bucket) {
    const size_t end = std::min(n, begin + bucket);
    double sum = 0, low = series.y[begin], high = low;
    bool finite = true;
    for (size_t i = begin; i < end; ++i) {
      const double y = series.y[i];
      sum += y;
      low = std::min(low, y);
      high = std::max(high, y);
      finite = finite && std::isfinite(y);
    }
    out.x.push_back(series.x[end - 1]);
    out.mean.push_back(finite ? sum / static_cast<double>(end - begin) : kNan);
    out.low.push_back(finite ? low : kNan);
    out.high.push_back(finite ? high : kNan);
  }
  return out;
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::string json_of(const PlotSeries& series, size_t most_points) {
  const Points points = reduce(series, most_points);
  std::string out =
      fmt::format(R"({{"name":{},"color":{},"run":{},"smooth":{},"markers":{},"x":{},"y":{})",
                  json_string(series.name), series.color, series.run, series.smooth,
                  series.markers && points.x.size() <= 60, number_list(points.x), number_list(points.mean));
  if (series.x.size() > most_points)
    out += R"(,"low":)" + number_list(points.low) + R"(,"high":)" + number_list(points.high);
  return out + "}";
}

std::string json_of(const LinePlot& plot) {
  std::string out = fmt::format(R"({{"height":{},"from_zero":{},"percent":{},"log":{},"log2":{},"span":{},)",
                                plot.height, plot.from_zero, plot.percent, plot.log_y,
                                plot.bytes_x    ? "\"bytes\""
                                : plot.tokens_x ? "\"tokens\""
                                                : "null",
                                number_list({plot.x_begin, plot.x_end}));
  out += R"("series":[)";
  for (size_t i = 0; i < plot.series.size(); ++i)
    out += (i > 0 ? "," : "") + json_of(plot.series[i], plot.most_points);
  return out + "]}";
}

std::string heading(const std::string& title, const std::string& subtitle) {
  std::string out = "<figcaption><b>" + escape_html(title) + "</b>";
  if (!subtitle.empty()) out += "<span>" + escape_html(subtitle) + "</span>";
  return out + "</figcaption>";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (size < 1e-3) {  // 3e-5, not 3e-05
    std::string text = fmt::format("{:.3g}", value);
    if (const size_t zero = text.find("e-0"); zero != text.npos) text.erase(zero + 2, 1);
    return text;
  }
  const char* const units[] = {"", "k", "M", "B", "T"};
  size_t unit = 0;
  double scaled = value;
  while (std::abs(scaled) >= 10000 || (unit > 0 && std::abs(scaled) >= 999.95)) {
    if (unit == 4) return fmt::format("{:.3g}", value);
    scaled /= 1000, ++unit;
  }
  if (unit == 0 && size >= 1000 && value == std::floor(value))
    return group_digits(static_cast<int64_t>(value));
  return fmt::format("{:.4g}{}", scaled, units[unit]);
}

std::string number_list(const std::vector<double>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    out += std::isfinite(values[i]) ? fmt::format("{:.5g}", values[i]) : "null";
  }
  return out + "]";
}

std::string draw(const LinePlot& plot) {
  std::string out = "<figure class=card>" + heading(plot.title, plot.subtitle);
  const bool any = std::any_of(plot.series.begin(), plot.series.end(), [](const PlotSeries& s) {
    return std::any_of(s.y.begin(), s.y.end(), [](double y) { return std::isfinite(y); });
  });
  if (!any) return out + "<p class=none>no values</p></figure>";
  if (plot.series.size() > 1) {
    out += "<div class=legend>";
    for (const PlotSeries& series : plot.series)
      out += fmt::format("<span><i class='c{}'></i>{}</span>", series.color, escape_html(series.name));
    out += "</div>";
  }
  return out + fmt::format(
                   "<div class=plot style='height:{}px' role=img aria-label=\"{}\" data-plot=\"{}\">"
                   "</div></figure>",
                   plot.height, escape_html(plot.title), escape_html(json_of(plot)));
}

void add_point(LinePlot& plot, const std::string& line, double x, double y) {
  auto found = std::find_if(plot.series.begin(), plot.series.end(),
                            [&](const PlotSeries& s) { return s.name == line; });
  if (found == plot.series.end()) {
    PlotSeries fresh;
    fresh.name = line;
    fresh.color = static_cast<int>(plot.series.size()) % 8;
    fresh.markers = true;
    found = plot.series.insert(found, std::move(fresh));
  }
  found->x.push_back(x);
  found->y.push_back(y);
}

namespace {

constexpr int kLevels = 8;  // of a heat map's colours, on each side of neutral

// Level of each cell of one row of the map; kLevels + 99 where there is no value.
std::vector<int> levels_of(const HeatMap& map, size_t row, size_t bucket) {
  std::vector<int> levels;
  for (size_t begin = 0; begin < map.values.size(); begin += bucket) {
    double sum = 0, count = 0;
    for (size_t i = begin; i < std::min(begin + bucket, map.values.size()); ++i)
      if (row < map.values[i].size()) sum += map.values[i][row], ++count;
    const double mean = count > 0 ? sum / count : kNan;
    levels.push_back(kLevels +
                     (std::isfinite(mean)
                          ? static_cast<int>(std::lround((std::clamp(mean, 0.0, 2.0) - 1) * kLevels))
                          : 99));
  }
  return levels;
}

}  // namespace

std::string draw(const HeatMap& map) {
  size_t rows = 0;
  for (const auto& column : map.values) rows = std::max(rows, column.size());
  const size_t max_columns = rows > 64 ? 40 : 90;
  const size_t bucket = std::max<size_t>(1, (map.values.size() + max_columns - 1) / max_columns);
  const size_t columns = (map.values.size() + bucket - 1) / bucket;
  const size_t row_height = rows > 64 ? 3 : rows > 24 ? 6 : 13;
  const size_t named = rows > 24 ? 4 : 1;  // every so many rows have their number
  std::string out = "<figure>" + heading(map.title, "") + "<div class=heat><div class=rows>";
  for (size_t row = 0; row < rows && rows <= 64; row += named)
    out += fmt::format("<span style='height:{}px'>{}</span>", row_height * std::min(named, rows - row), row);
  out += fmt::format(
      "</div><svg viewBox='0 0 {} {}' preserveAspectRatio=none role=img aria-label=\"{}\" "
      "shape-rendering=crispEdges style='height:{}px'>",
      columns, rows, escape_html(map.title), row_height * rows);
  for (size_t row = 0; row < rows; ++row) {
    const std::vector<int> levels = levels_of(map, row, bucket);
    for (size_t begin = 0; begin < levels.size();) {  // neighbours of one level are one rectangle
      size_t end = begin;
      while (end < levels.size() && levels[end] == levels[begin]) ++end;
      out += fmt::format("<rect class=h{} x={} y={} width={} height={} />", levels[begin], begin, row,
                         end - begin, row_height > 5 ? "0.92" : "1");
      begin = end;
    }
  }
  out += "</svg><div></div><div class=steps>";
  if (!map.x.empty())
    out += fmt::format("<span>{}</span><span>step {}</span>", short_number(map.x.front()),
                       short_number(map.x.back()));
  return out + "</div></div></figure>";
}

std::string draw_bars(const std::string& title, const std::string& subtitle, const std::vector<Bar>& bars,
                      double whole) {
  double largest = whole;
  if (whole <= 0)
    for (const Bar& bar : bars) largest = std::max(largest, bar.value + bar.error);
  const auto percent_of = [&](double value) {
    return largest > 0 ? 100 * std::clamp(value / largest, 0.0, 1.0) : 0;
  };
  std::string out = "<figure class=card>" + heading(title, subtitle) + "<div class=bars>";
  for (const Bar& bar : bars) {
    std::string error;
    if (bar.error > 0) {
      const double begin = percent_of(bar.value - bar.error), end = percent_of(bar.value + bar.error);
      error = fmt::format("<u style='left:{:.2f}%;width:{:.2f}%'></u>", begin, end - begin);
    }
    out += fmt::format("<span>{}</span><div><i style='width:{:.2f}%'></i>{}</div><span class=num>{}</span>",
                       escape_html(bar.name), percent_of(bar.value), error, escape_html(bar.label));
  }
  return out + "</div></figure>";
}

std::string draw_time_bars(const std::string& title, const std::string& subtitle,
                           const std::map<std::string, double>& seconds, double whole, size_t most) {
  const auto bar = [whole](const std::string& name, double s) {
    return Bar{name, fmt::format("{:.1f} % · {}", whole > 0 ? 100 * s / whole : 0, format_seconds(s)), s};
  };
  std::vector<Bar> bars;
  for (const auto& [name, s] : seconds)
    if (s > 0) bars.push_back(bar(name, s));
  std::sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.value > b.value; });
  if (bars.size() > most) {
    double rest = 0;
    for (size_t i = most - 1; i < bars.size(); ++i) rest += bars[i].value;
    const std::string name = fmt::format("{} others", bars.size() - most + 1);
    bars.resize(most - 1);
    bars.push_back(bar(name, rest));
  }
  return bars.empty() ? "" : draw_bars(title, subtitle, bars);
}

}  // namespace ingot
