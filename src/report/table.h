// A table of a report: columns that state heading, format and JSON name once, and rows of cells. It prints as
// aligned text for a terminal, as an HTML table for a page and as JSON. Pure functions; not thread-safe.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/spread.h"

namespace ingot {

/// Nothing, text, a whole number, a real number, or the median and extremes of a measurement.
using Cell = std::variant<std::monostate, std::string, int64_t, double, Spread>;

enum class Align { left, right };

struct Column {
  std::string title;          ///< heading; the unit is here ("ms") or in the format
  std::string format = "{}";  ///< of numbers, e.g. "{:.1f}%"; of a Spread its median is shown
  double scale = 1;           ///< numbers are multiplied by it when shown, e.g. 1e3 for seconds in ms
  Align align = Align::right;
  bool spread = false;     ///< a column beside it shows the width of each Spread
  bool heat = false;       ///< HTML cells are coloured by their value, from 0 (red) to 1 (green)
  std::string group = {};  ///< heading above neighbouring columns of the same group, which bars set apart
  std::string field = {};  ///< name in JSON; empty: not in JSON
};

/// Columns of left-aligned text, of numbers with some decimals, and of shares shown in percent.
Column words(std::string title, std::string field = {});
Column number(std::string title, int digits, double scale = 1, std::string group = {});
Column percent(std::string title, std::string group = {});

class Table {
 public:
  explicit Table(std::vector<Column> columns, std::string title = {});
  /// One cell for each column.
  void add(std::vector<Cell> row);
  bool empty() const { return rows_.empty(); }
  /// Title, headings and rows, each line ended; an empty table prints nothing.
  std::string text() const;
  std::string html() const;
  /// An array of objects with the unscaled cells of the columns that have a field; empty cells are left out.
  nlohmann::ordered_json json() const;

 private:
  struct Printed;
  std::vector<Printed> printed() const;
  std::string heading(const Printed& p) const;
  std::string shown(const Printed& p, const std::vector<Cell>& row) const;
  bool grouped() const;
  std::vector<Column> columns_;
  std::string title_;
  std::vector<std::vector<Cell>> rows_;
};

/// "1 thread", "2 threads": a count with its noun.
std::string count_of(int64_t count, const std::string& noun);

/// "  name         value": a line of a summary whose values stand below each other.
std::string named_line(std::string_view name, std::string_view value);

/// The texts of the non-empty tables, with a blank line before each.
std::string text_of(const std::vector<Table>& tables);
/// The tables as cards of a page (report.h).
std::string html_of(const std::vector<Table>& tables);

}  // namespace ingot
