// Figures of plans as HTML fragments (plot.h): what each rank does over a step, and layouts by memory and
// speed. They need no script: an SVG stretches to the width of the page, its texts are beside it. Pure
// functions.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ingot {

/// What happens from one time to another.
struct TimelineSpan {
  double begin = 0, end = 0;
  int color = 0;      ///< 0 to 7
  std::string label;  ///< shown at the mouse; may be empty
};

struct Timeline {
  std::string title, subtitle;
  double end = 0;  ///< of the axis, which begins at 0; spans beyond it are cut
  std::vector<std::pair<std::string, std::vector<TimelineSpan>>> rows;  ///< by name, from the top
  std::vector<std::pair<std::string, int>> legend;                      ///< names of colours
};
std::string draw(const Timeline& timeline);

struct ScatterPoint {
  double x = 0, y = 0;
  std::string group, label;  ///< a group has one colour
};

/// Points, and a line along those that none beats: of which no other has less x and more y.
struct Scatter {
  std::string title, subtitle;
  std::string x_begin, x_end;  ///< what the ends of the x axis say
  std::vector<ScatterPoint> points;
};
/// Indices of the points that none beats, by ascending x.
std::vector<size_t> frontier_of(const std::vector<ScatterPoint>& points);
std::string draw(const Scatter& scatter);

}  // namespace ingot
