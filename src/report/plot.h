// Figures of the report as HTML fragments: lines over steps or sizes, heat maps over steps, bars. A line plot
// holds its points as data; the script of the page (report_script.cpp) draws them at the width of the screen.
// Colours are CSS variables (report_style.cpp), so a figure works in the light and the dark theme. Pure
// functions.
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
  int run = 0;               ///< whose tokens and hours belong to the steps of x (render_page, `clocks`)
  bool smooth = false;       ///< the reader may smooth it: drawn faintly, with its moving mean over it
  bool markers = false;      ///< dots at the values, for short series
};

struct LinePlot {
  std::string title, subtitle;
  std::vector<PlotSeries> series;
  bool from_zero = false;             ///< the y axis includes 0
  bool percent = false;               ///< y ticks carry a percent sign
  bool log_y = false;                 ///< if all values are positive
  bool bytes_x = false;               ///< x is log2 of a number of bytes, not a step
  bool tokens_x = false;              ///< x is log2 of a number of tokens, not a step
  double x_begin = NAN, x_end = NAN;  ///< the x axis includes these, so that plots of one run share it
  int height = 240;                   ///< CSS pixels
  size_t most_points = 360;           ///< per line; longer ones are averaged in buckets, extremes kept
};
std::string draw(const LinePlot& plot);
/// Adds a point to the line of that name; the first point starts the line, with markers and the next colour.
void add_point(LinePlot& plot, const std::string& line, double x, double y);
/// "[1,2.5,null]": five digits, and null for what is not finite.
std::string number_list(const std::vector<double>& values);

struct HeatMap {
  std::string title;
  std::vector<double> x;                    ///< steps, ascending
  std::vector<std::vector<double>> values;  ///< one list per step, one value per row of the map; 1 is neutral
};
/// Values from 0 (colour "below") through 1 (neutral) to 2 and more (colour "above").
std::string draw(const HeatMap& map);

struct Bar {
  std::string name, label;
  double value = 0;
  double error = 0;  ///< standard error, drawn over the bar's end; 0: none
};
/// The width stands for `whole`; 0: for the largest value.
std::string draw_bars(const std::string& title, const std::string& subtitle, const std::vector<Bar>& bars,
                      double whole = 0);
/// Bars of seconds by name, the longest first, with their shares of `whole` seconds; more than `most` are cut
/// to `most` - 1 and a sum of the others. Empty without positive values.
std::string draw_time_bars(const std::string& title, const std::string& subtitle,
                           const std::map<std::string, double>& seconds, double whole, size_t most);

}  // namespace ingot
