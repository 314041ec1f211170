// See svg_plot.h.
#include "report/svg_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/progress.h"

namespace ingot {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMaxPoints = 360;  // per line: more than pixels would show only makes the file large

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return !(low <= high); }
  double size() const { return high - low; }
};

// A line reduced to at most kMaxPoints buckets.
struct Points {
  std::vector<double> x, mean, low, high;
};

Points reduce(const std::vector<double>& x, const std::vector<double>& y) {
  Points out;
  const size_t n = std::min(x.size(), y.size());
  const size_t bucket = (n + kMaxPoints - 1) / kMaxPoints;
  for (size_t begin = 0; begin < n; begin += bucket) {
    const size_t end = std::min(n, begin + bucket);
    Range range;
    double sum = 0;
    bool broken = false;
    for (size_t i = begin; i < end; ++i) {
      range.add(y[i]);
      sum += y[i];
      broken = broken || !std::isfinite(y[i]);
    }
    out.x.push_back(x[end - 1]);
    out.mean.push_back(broken ? kNan : sum / static_cast<double>(end - begin));
    out.low.push_back(broken ? kNan : range.low);
    out.high.push_back(broken ? kNan : range.high);
  }
  return out;
}

// Mean over a window of 2 % of the values around each one. The window is symmetric, smaller towards both
// ends, so that the line neither lags nor bends there.
std::vector<double> moving_mean(const std::vector<double>& y) {
  std::vector<double> sums(y.size() + 1, 0), counts(y.size() + 1, 0), out;
  for (size_t i = 0; i < y.size(); ++i) {
    const bool finite = std::isfinite(y[i]) && std::abs(y[i]) < 1e100;
    sums[i + 1] = sums[i] + (finite ? y[i] : 0);
    counts[i + 1] = counts[i] + (finite ? 1 : 0);
  }
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t half = std::min(y.size() / 100, i);
    const size_t begin = i - half, end = std::min(i + half + 1, y.size());
    const bool finite = std::isfinite(y[i]) && counts[end] > counts[begin];
    out.push_back(finite ? (sums[end] - sums[begin]) / (counts[end] - counts[begin]) : kNan);
  }
  return out;
}

std::vector<double> ticks(Range range, int wanted) {
  const double raw = range.size() / wanted;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    step = factor * power;
    if (step >= raw * 0.999) break;
  }
  std::vector<double> out;
  for (double i = std::ceil(range.low / step - 1e-9); i * step <= range.high + step * 1e-9 && out.size() < 20;
       ++i)
    out.push_back(i == 0 ? 0 : i * step);
  return out;
}

std::vector<double> log_ticks(Range range) {  // of log10 values
  std::vector<double> out;
  const bool few = range.size() < 2;
  for (double power = std::floor(range.low); power <= range.high; ++power)
    for (const double factor : {1.0, 2.0, 5.0})
      if (few || factor == 1.0)
        if (const double t = power + std::log10(factor); t >= range.low - 1e-9 && t <= range.high + 1e-9)
          out.push_back(t);
  return out;
}

std::vector<double> powers_of_two(Range range) {
  std::vector<double> out;
  const double step = std::max(2.0, std::ceil(range.size() / 6));
  for (double power = std::ceil(range.low); power <= range.high; power += step) out.push_back(power);
  return out;
}

/// 2^power bytes: "16 KiB".
std::string binary_bytes(double power) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  const int unit = std::clamp(static_cast<int>(power / 10), 0, 4);
  return fmt::format("{:.0f} {}", std::exp2(power - 10 * unit), kUnits[unit]);
}

std::string number_list(const std::vector<double>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    out += std::isfinite(values[i]) ? fmt::format("{:.5g}", values[i]) : "null";
  }
  return out + "]";
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

struct Frame {
  double left = 54, right = 12, top = 10, bottom = 26;
  double width, height;
  Range x, y;
  bool log_y = false;
  double at_x(double value) const { return left + (value - x.low) / x.size() * (width - left - right); }
  double at_y(double value) const {
    if (log_y) value = std::log10(value);
    return height - bottom - (value - y.low) / y.size() * (height - top - bottom);
  }
};

std::string path_data(const Frame& frame, const std::vector<double>& x, const std::vector<double>& y) {
  std::string out;
  bool pen_down = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i])) {
      pen_down = false;
      continue;
    }
    out += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', frame.at_x(x[i]), frame.at_y(y[i]));
    pen_down = true;
  }
  return out;
}

std::string draw_axes(const LinePlot& plot, const Frame& frame) {
  std::string out;
  const double bottom = frame.height - frame.bottom;
  for (const double tick : frame.log_y ? log_ticks(frame.y) : ticks(frame.y, 4)) {
    const double value = frame.log_y ? std::pow(10, tick) : tick;
    const double y = frame.at_y(value);
    out += fmt::format("<line class=grid x1={:.1f} x2={:.1f} y1={:.1f} y2={:.1f} />", frame.left,
                       frame.width - frame.right, y, y);
    out += fmt::format("<text class=tick x={:.1f} y={:.1f} text-anchor=end>{}{}</text>", frame.left - 7,
                       y + 3.5, short_number(value), plot.percent ? "%" : "");
  }
  for (const double tick : plot.bytes_x ? powers_of_two(frame.x) : ticks(frame.x, 6))
    out += fmt::format("<text class=tick x={:.1f} y={:.1f} text-anchor=middle>{}</text>", frame.at_x(tick),
                       bottom + 16, plot.bytes_x ? binary_bytes(tick) : short_number(tick));
  out += fmt::format("<line class=axis x1={:.1f} x2={:.1f} y1={:.1f} y2={:.1f} />", frame.left,
                     frame.width - frame.right, bottom, bottom);
  if (!plot.bytes_x)
    out += fmt::format("<text class=tick x={:.1f} y={:.1f} text-anchor=end>step</text>", frame.left - 8,
                       bottom + 16);
  return out;
}

std::string draw_series(const PlotSeries& series, const Frame& frame, std::string& hover) {
  const Points points = reduce(series.x, series.y);
  std::string out;
  std::vector<double> shown = points.mean;
  if (series.smooth ||
      series.x.size() > kMaxPoints) {  // every value is inside the zigzag between the extremes
    std::vector<double> x, y;
    for (size_t i = 0; i < points.x.size(); ++i) {
      x.insert(x.end(), {points.x[i], points.x[i]});
      y.insert(y.end(), {points.low[i], points.high[i]});
    }
    out += fmt::format("<path class='faint c{}' d='{}'/>", series.color, path_data(frame, x, y));
  }
  if (series.smooth) shown = reduce(series.x, moving_mean(series.y)).mean;
  out += fmt::format("<path class='line c{}' d='{}'/>", series.color, path_data(frame, points.x, shown));
  if (series.markers && points.x.size() <= 60)
    for (size_t i = 0; i < points.x.size(); ++i)
      if (std::isfinite(shown[i]))
        out += fmt::format("<circle class='dot c{}' cx={:.1f} cy={:.1f} r=3.5 />", series.color,
                           frame.at_x(points.x[i]), frame.at_y(shown[i]));
  hover += fmt::format("{}{{\"n\":{},\"c\":{},\"x\":{},\"y\":{}}}", hover.empty() ? "" : ",",
                       json_string(series.name), series.color, number_list(points.x), number_list(shown));
  return out;
}

Range padded(Range range, bool from_zero) {
  if (from_zero) range.add(0);
  if (range.size() <= 1e-12 * std::abs(range.high)) {
    const double pad = range.high == 0 ? 1 : 0.1 * std::abs(range.high);
    if (!from_zero || range.high == 0) range.low -= from_zero ? 0 : pad;
    range.high += pad;
  } else {
    const double pad = 0.04 * range.size();
    range.high += pad;
    if (!(from_zero && range.low == 0)) range.low -= pad;
  }
  return range;
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

std::string draw(const LinePlot& plot) {
  Frame frame;
  frame.width = plot.width;
  frame.height = plot.height;
  frame.log_y = plot.log_y;
  for (const PlotSeries& series : plot.series)
    for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
      if (!std::isfinite(series.y[i])) continue;
      frame.x.add(series.x[i]);
      frame.y.add(series.y[i]);
      frame.log_y = frame.log_y && series.y[i] > 0;
    }
  std::string out = "<figure class=card>" + heading(plot.title, plot.subtitle);
  if (frame.y.empty()) return out + "<p class=none>no values</p></figure>";
  if (frame.log_y) frame.y = {std::log10(frame.y.low), std::log10(frame.y.high)};
  frame.y = padded(frame.y, plot.from_zero && !frame.log_y);
  frame.x.add(plot.x_begin);
  frame.x.add(plot.x_end);
  if (!plot.bytes_x && frame.x.low > 0 && frame.x.low < 0.05 * frame.x.high) frame.x.low = 0;
  if (frame.x.size() <= 0) frame.x.high = frame.x.low + 1;

  if (plot.series.size() > 1) {
    out += "<div class=legend>";
    for (const PlotSeries& series : plot.series)
      out += fmt::format("<span><i class='c{}'></i>{}</span>", series.color, escape_html(series.name));
    out += "</div>";
  }
  std::string lines, hover;
  for (const PlotSeries& series : plot.series) lines += draw_series(series, frame, hover);
  out += fmt::format(
      "<svg class=plot viewBox='0 0 {} {}' role=img aria-label=\"{}\" data-left={} data-right={} "
      "data-low={:.17g} "
      "data-high={:.17g} data-unit='{}' data-x='{}' data-series=\"{}\">",
      plot.width, plot.height, escape_html(plot.title), frame.left, frame.width - frame.right, frame.x.low,
      frame.x.high, plot.percent ? "%" : "", plot.bytes_x ? "bytes" : "step", escape_html("[" + hover + "]"));
  return out + draw_axes(plot, frame) + lines + "</svg></figure>";
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

std::string draw(const HeatMap& map) {
  constexpr int kLevels = 8;  // on each side of neutral
  size_t rows = 0;
  for (const auto& column : map.values) rows = std::max(rows, column.size());
  const size_t max_columns = rows > 64 ? 40 : 90;
  const size_t bucket = std::max<size_t>(1, (map.values.size() + max_columns - 1) / max_columns);
  const size_t columns = (map.values.size() + bucket - 1) / bucket;
  const double left = 28, top = 4, row_height = rows > 64 ? 3 : rows > 24 ? 6 : 12;
  const double cell = (map.width - left - 4) / static_cast<double>(std::max<size_t>(columns, 1));
  const double height = top + row_height * static_cast<double>(rows) + 22;
  std::string out = "<figure class=map>" + heading(map.title, "");
  out += fmt::format("<svg viewBox='0 0 {} {:.0f}' role=img aria-label=\"{}\" shape-rendering=crispEdges>",
                     map.width, height, escape_html(map.title));
  for (size_t row = 0; row < rows; ++row) {
    int open_level = 0;
    size_t open_from = 0;
    for (size_t column = 0; column <= columns; ++column) {  // neighbours of one level are one rectangle
      int level = std::numeric_limits<int>::min();
      if (column < columns) {
        double sum = 0, count = 0;
        for (size_t i = column * bucket; i < std::min((column + 1) * bucket, map.values.size()); ++i)
          if (row < map.values[i].size()) sum += map.values[i][row], ++count;
        const double mean = count > 0 ? sum / count : kNan;
        level = std::isfinite(mean)
                    ? static_cast<int>(std::lround((std::clamp(mean, 0.0, 2.0) - 1) * kLevels))
                    : 99;
      }
      if (column > 0 && level != open_level) {
        out += fmt::format(
            "<rect class=h{} x={:.1f} y={:.0f} width={:.1f} height={:.0f} />", open_level + kLevels,
            left + cell * static_cast<double>(open_from), top + row_height * static_cast<double>(row),
            cell * static_cast<double>(column - open_from), row_height - (row_height > 5 ? 1 : 0));
        open_from = column;
      }
      open_level = level;
    }
    if (row_height > 5 && (rows <= 24 || row % 4 == 0))
      out += fmt::format("<text class=tick x={:.0f} y={:.1f} text-anchor=end>{}</text>", left - 5,
                         top + row_height * (static_cast<double>(row) + 0.78), row);
  }
  if (!map.x.empty()) {
    const double y = height - 7;
    out += fmt::format("<text class=tick x={:.0f} y={:.0f}>{}</text>", left, y, short_number(map.x.front()));
    out += fmt::format("<text class=tick x={} y={:.0f} text-anchor=end>step {}</text>", map.width - 4, y,
                       short_number(map.x.back()));
  }
  return out + "</svg></figure>";
}

std::string draw_bars(const std::string& title, const std::string& subtitle, const std::vector<Bar>& bars) {
  double largest = 0;
  for (const Bar& bar : bars) largest = std::max(largest, bar.value);
  std::string out = "<figure class=card>" + heading(title, subtitle) + "<div class=bars>";
  for (const Bar& bar : bars)
    out += fmt::format("<span>{}</span><div><i style='width:{:.2f}%'></i></div><span class=num>{}</span>",
                       escape_html(bar.name), largest > 0 ? 100 * bar.value / largest : 0,
                       escape_html(bar.label));
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
