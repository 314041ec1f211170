// See step_figures.h.
#include "report/step_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/progress.h"
#include "report/plot.h"

namespace ingot {
namespace {

constexpr double kWidth = 1000, kHeight = 300;  // of a drawing, before it is stretched
constexpr int kColors = 8;
/// Labels at the mouse are for figures that a person can point into.
constexpr size_t kMostLabels = 1500;

std::string caption(const std::string& title, const std::string& subtitle) {
  return fmt::format("<figcaption><b>{}</b><span>{}</span></figcaption>", escape_html(title),
                     escape_html(subtitle));
}

std::string legend_of(const std::vector<std::pair<std::string, int>>& names) {
  std::string out = "<div class=legend>";
  for (const auto& [name, color] : names)
    out += fmt::format("<span><i class='c{}'></i>{}</span>", color % kColors, escape_html(name));
  return out + "</div>";
}

std::string label_of(const std::string& text) {
  return text.empty() ? "" : "<title>" + escape_html(text) + "</title>";
}

}  // namespace

std::string draw(const Timeline& t) {
  if (t.rows.empty() || t.end <= 0) return "";
  size_t count = 0;
  for (const auto& [name, spans] : t.rows) count += spans.size();
  const size_t height = t.rows.size() > 24 ? 8 : 16;
  std::string out = "<figure class=card>" + caption(t.title, t.subtitle) + legend_of(t.legend) +
                    "<div class=heat><div class=rows>";
  for (const auto& [name, spans] : t.rows)
    out += fmt::format("<span style='height:{0}px;line-height:{0}px'>{1}</span>", height,
                       height < 10 ? "" : escape_html(name));
  out += fmt::format(
      "</div><svg viewBox='0 0 {:.0f} {}' preserveAspectRatio=none role=img aria-label=\"{}\" "
      "style='height:{}px'>",
      kWidth, t.rows.size(), escape_html(t.title), height * t.rows.size());
  for (size_t row = 0; row < t.rows.size(); ++row)
    for (const TimelineSpan& s : t.rows[row].second) {
      const double begin = std::max(0.0, s.begin), end = std::min(s.end, t.end);
      if (end <= begin) continue;
      out += fmt::format(
          "<rect class=c{} fill=currentColor x={:.3f} y={:.2f} width={:.3f} height=0.86 >{}</rect>",
          s.color % kColors, kWidth * begin / t.end, static_cast<double>(row) + 0.07,
          kWidth * (end - begin) / t.end, count <= kMostLabels ? label_of(s.label) : "");
    }
  return out +
         fmt::format("</svg><div></div><div class=steps><span>0</span><span>{}</span></div></div></figure>",
                     format_seconds(t.end));
}

std::vector<size_t> frontier_of(const std::vector<ScatterPoint>& points) {
  std::vector<size_t> order(points.size()), best;
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return points[a].x != points[b].x ? points[a].x < points[b].x : points[a].y > points[b].y;
  });
  for (const size_t i : order)
    if (best.empty() || points[i].y > points[best.back()].y) best.push_back(i);
  return best;
}

std::string draw(const Scatter& s) {
  if (s.points.empty()) return "";
  double x0 = s.points[0].x, x1 = x0, y0 = s.points[0].y, y1 = y0;
  for (const ScatterPoint& p : s.points)
    x0 = std::min(x0, p.x), x1 = std::max(x1, p.x), y0 = std::min(y0, p.y), y1 = std::max(y1, p.y);
  const auto x_of = [&](const ScatterPoint& p) {
    return x1 > x0 ? 20 + (kWidth - 40) * (p.x - x0) / (x1 - x0) : kWidth / 2;
  };
  const auto y_of = [&](const ScatterPoint& p) {
    return y1 > y0 ? kHeight - 20 - (kHeight - 40) * (p.y - y0) / (y1 - y0) : kHeight / 2;
  };
  std::vector<std::pair<std::string, int>> groups;
  const auto color_of = [&](const std::string& group) {
    for (const auto& [name, color] : groups)
      if (name == group) return color;
    groups.emplace_back(group, static_cast<int>(groups.size()) % kColors);
    return groups.back().second;
  };
  std::string dots, line;
  for (const size_t i : frontier_of(s.points))
    line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x_of(s.points[i]), y_of(s.points[i]));
  for (const ScatterPoint& p :
       s.points)  // a line of no length with round ends stays round when it is stretched
    dots += fmt::format(
        "<path class=c{} d='M{:.1f} {:.1f}h0.01' stroke=currentColor stroke-width=9 stroke-linecap=round "
        "vector-effect=non-scaling-stroke>{}</path>",
        color_of(p.group), x_of(p), y_of(p), label_of(p.label));
  return "<figure class=card>" + caption(s.title, s.subtitle) + legend_of(groups) +
         fmt::format(
             "<div class=heat><div class=rows><span style='height:{0}px'>{1}</span><span>{2}</span></div>"
             "<svg viewBox='0 0 {3:.0f} {4:.0f}' preserveAspectRatio=none role=img aria-label=\"{5}\" "
             "style='height:{4:.0f}px'><path class=axis fill=none vector-effect=non-scaling-stroke "
             "d='M0 0V{4:.0f}H{3:.0f}'/><path class=cursor fill=none "
             "vector-effect=non-scaling-stroke d='{6}'/>{7}</svg>",
             static_cast<int>(kHeight) - 14, short_number(y1), short_number(y0), kWidth, kHeight,
             escape_html(s.title), line, dots) +
         fmt::format("<div></div><div class=steps><span>{}</span><span>{}</span></div></div></figure>",
                     escape_html(s.x_begin), escape_html(s.x_end));
}

}  // namespace ingot
