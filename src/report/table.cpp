// See table.h.
#include "report/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "report/plot.h"

namespace ingot {
namespace {

/// Characters of UTF-8 text.
size_t width_of_text(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string aligned(const std::string& text, size_t width, Align align) {
  const std::string blanks(width - std::min(width, width_of_text(text)), ' ');
  return align == Align::left ? text + blanks : blanks + text;
}

double number_of(const Cell& cell) {
  if (const auto* integer = std::get_if<int64_t>(&cell)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&cell)) return *real;
  const auto* spread = std::get_if<Spread>(&cell);
  return spread != nullptr ? spread->median : 0;
}

}  // namespace

/// A column as it is printed: its values, or the widths of their spreads.
struct Table::Printed {
  size_t index;
  bool widths;
};

Column words(std::string title, std::string field) {
  return {.title = std::move(title), .align = Align::left, .field = std::move(field)};
}
Column number(std::string title, int digits, double scale, std::string group) {
  return {std::move(title), fmt::format("{{:.{}f}}", digits), scale, Align::right, false, false,
          std::move(group)};
}
Column percent(std::string title, std::string group) {
  return {.title = std::move(title), .format = "{:.1f}%", .scale = 100, .group = std::move(group)};
}

Table::Table(std::vector<Column> columns, std::string title)
    : columns_(std::move(columns)), title_(std::move(title)) {}

void Table::add(std::vector<Cell> row) {
  INGOT_CHECK(row.size() == columns_.size(), "{} cells in {} columns", row.size(), columns_.size());
  rows_.push_back(std::move(row));
}

std::vector<Table::Printed> Table::printed() const {
  std::vector<Printed> all;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].title.empty() && !columns_[c].field.empty()) continue;  // only in JSON
    all.push_back({c, false});
    if (columns_[c].spread) all.push_back({c, true});
  }
  return all;
}

std::string Table::heading(const Printed& p) const {
  return p.widths ? "spread" : columns_[p.index].title;
}

std::string Table::shown(const Printed& p, const std::vector<Cell>& row) const {
  const Cell& cell = row[p.index];
  const Column& column = columns_[p.index];
  if (p.widths) return std::holds_alternative<Spread>(cell) ? width_of(std::get<Spread>(cell)) : "";
  if (std::holds_alternative<std::monostate>(cell)) return "";
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* integer = std::get_if<int64_t>(&cell); integer != nullptr && column.format == "{}")
    return std::to_string(*integer);
  return fmt::format(fmt::runtime(column.format), column.scale * number_of(cell));
}

bool Table::grouped() const {
  return std::any_of(columns_.begin(), columns_.end(), [](const Column& c) { return !c.group.empty(); });
}

std::string Table::text() const {
  if (rows_.empty()) return "";
  std::string groups, header, before;
  std::vector<std::string> lines(rows_.size());
  for (const Printed& p : printed()) {
    const Column& column = columns_[p.index];
    size_t width = width_of_text(heading(p));
    for (const auto& row : rows_) width = std::max(width, width_of_text(shown(p, row)));
    const bool new_group = column.group != before;
    const std::string gap = header.empty() ? "" : new_group ? " | " : "  ";
    if (new_group) groups = aligned(groups, header.size(), Align::left) + gap + column.group;
    before = column.group;
    header += gap + aligned(heading(p), width, column.align);
    for (size_t r = 0; r < rows_.size(); ++r)
      lines[r] += gap + aligned(shown(p, rows_[r]), width, column.align);
  }
  if (header.find_first_not_of(" |") != header.npos) lines.insert(lines.begin(), header);
  if (grouped()) lines.insert(lines.begin(), groups);
  if (!title_.empty()) lines.insert(lines.begin(), title_);
  std::string text;
  for (const std::string& line : lines) text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  return text;
}

std::string Table::html() const {
  if (rows_.empty()) return "";
  const std::vector<Printed> columns = printed();
  std::string out = "<figure class=card>";
  if (!title_.empty()) out += "<figcaption><b>" + escape_html(title_) + "</b></figcaption>";
  out += "<div style='overflow-x:auto'><table class=wide>";
  if (grouped()) {
    out += "<tr>";
    for (size_t c = 0; c < columns.size();) {
      const std::string& group = columns_[columns[c].index].group;
      const size_t first = c;
      while (c < columns.size() && columns_[columns[c].index].group == group) ++c;
      out += fmt::format("<th colspan={}>{}</th>", c - first, escape_html(group));
    }
    out += "</tr>";
  }
  std::string header;
  bool titled = false;
  for (const Printed& p : columns) {
    titled |= !heading(p).empty();
    header += "<th>" + escape_html(heading(p)) + "</th>";
  }
  if (titled) out += "<tr>" + header + "</tr>";
  for (const auto& row : rows_) {
    out += "<tr>";
    for (const Printed& p : columns) {
      const Column& column = columns_[p.index];
      out += column.align == Align::left ? "<td" : "<td class=num";
      if (column.heat && !p.widths && !std::holds_alternative<std::monostate>(row[p.index]))
        out += fmt::format(" style='background:hsl({:.0f} 60% 50% / 0.55)'",
                           130 * std::clamp(number_of(row[p.index]), 0.0, 1.0));
      out += ">" + escape_html(shown(p, row)) + "</td>";
    }
    out += "</tr>";
  }
  return out + "</table></div></figure>";
}

nlohmann::ordered_json Table::json() const {
  auto all = nlohmann::ordered_json::array();
  for (const auto& row : rows_) {
    auto object = nlohmann::ordered_json::object();
    for (size_t c = 0; c < columns_.size(); ++c)
      if (!columns_[c].field.empty())
        std::visit(
            [&](const auto& value) {
              if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
                object[columns_[c].field] = value;
            },
            row[c]);
    all.push_back(std::move(object));
  }
  return all;
}

std::string count_of(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string named_line(std::string_view name, std::string_view value) {
  return fmt::format("  {:<12} {}\n", name, value);
}

std::string text_of(const std::vector<Table>& tables) {
  std::string text;
  for (const Table& table : tables)
    if (!table.empty()) text += "\n" + table.text();
  return text;
}

std::string html_of(const std::vector<Table>& tables) {
  std::string html;
  for (const Table& table : tables) html += table.html();
  return html;
}

}  // namespace ingot
