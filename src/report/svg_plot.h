// Figures for the report as HTML fragments with inline SVG: lines over steps, heat maps over steps, bars.
// Colours are CSS variables (report_assets.cpp), so a figure works in the light and the dark theme. The
// script of the page reads the data attributes to show values under the pointer. Pure functions.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// `text` with &, <, >, " and ' replaced: safe in elements and in quoted attributes.
std::string escape_html(std::string_view text);
/// About four significant digits: "3.142", "12.3k", "3e-5".
std::string short_number(double value);

struct PlotSeries {
  std::string name;
  std::vector<double> x, y;  ///< x ascending; a non-finite y interrupts the line
  int color = 0;             ///< 0 to 7, index of a categorical colour
  bool smooth = false;       ///< draw the values faintly and their moving mean strongly
  bool markers = false;      ///< dots at the values, for short series
};

struct LinePlot {
  std::string title, subtitle;
  std::vector<PlotSeries> series;
  bool from_zero = false;             ///< the y axis includes 0
  bool percent = false;               ///< y ticks carry a percent sign
  bool log_y = false;                 ///< if all values are positive
  bool bytes_x = false;               ///< x is log2 of a number of bytes, not a step
  double x_begin = NAN, x_end = NAN;  ///< the x axis includes these, so that plots of one run share it
  int width = 540, height = 250;
};
std::string draw(const LinePlot& plot);
/// Adds a point to the line of that name; the first point starts the line, with markers and the next colour.
void add_point(LinePlot& plot, const std::string& line, double x, double y);

struct HeatMap {
  std::string title;
  std::vector<double> x;                    ///< steps, ascending
  std::vector<std::vector<double>> values;  ///< one list per step, one value per row of the map; 1 is neutral
  int width = 540;
};
/// Values from 0 (colour "below") through 1 (neutral) to 2 and more (colour "above").
std::string draw(const HeatMap& map);

struct Bar {
  std::string name, label;
  double value = 0;
};
std::string draw_bars(const std::string& title, const std::string& subtitle, const std::vector<Bar>& bars);
/// Bars of seconds by name, the longest first, with their shares of `whole` seconds; more than `most` are cut
/// to `most` - 1 and a sum of the others. Empty without positive values.
std::string draw_time_bars(const std::string& title, const std::string& subtitle,
                           const std::map<std::string, double>& seconds, double whole, size_t most);

}  // namespace ingot
