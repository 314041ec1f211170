// See metrics.h.
#include "report/metrics.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "report/json_lines.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double to_number(const Json& json, const std::string& where) {
  if (json.is_number()) return json.get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  fail("{}: expected a number, found a value of type {}", where, json.type_name());
}

}  // namespace

const double* MetricRow::scalar(std::string_view name) const {
  for (const auto& [key, value] : scalars)
    if (key == name) return &value;
  return nullptr;
}

const std::vector<double>* MetricRow::list(std::string_view name) const {
  for (const auto& [key, value] : lists)
    if (key == name) return &value;
  return nullptr;
}

std::string to_json_line(const MetricRow& row) {
  Json json = Json::object();
  json["step"] = row.step;
  json["wall"] = row.wall;
  for (const auto& [name, value] : row.scalars) json[name] = number(value);
  for (const auto& [name, values] : row.lists) {
    Json& list = json[name] = Json::array();
    for (const double value : values) list.push_back(number(value));
  }
  return json.dump();
}

MetricRow parse_metric_row(std::string_view line, const std::string& where) {
  const Json json = parse_object_line(line, "metrics row", 4, where);
  if (!json.contains("step") || !json["step"].is_number_integer())
    fail("{}: not a metrics row: expected an object with an integer \"step\"", where);
  MetricRow row;
  row.step = json["step"].get<int64_t>();
  for (const auto& [name, value] : json.items()) {
    const std::string place = where + ": \"" + name + "\"";
    if (name == "step") continue;
    if (name == "wall") {
      row.wall = to_number(value, place);
    } else if (value.is_array()) {
      std::vector<double> values;
      for (const auto& item : value) values.push_back(to_number(item, place));
      row.set(name, std::move(values));
    } else {
      // Older files have the former name.
      row.set(name == "percent_of_light" ? "percent_of_roofline" : name, to_number(value, place));
    }
  }
  return row;
}

std::vector<MetricRow> read_metrics(FileSystem& fs, const std::string& path) {
  std::vector<MetricRow> rows;
  read_lines(fs, path, [&](std::string_view line, const std::string& where) {
    rows.push_back(parse_metric_row(line, where));
  });
  return rows;
}

MetricsWriter::MetricsWriter(FileSystem& fs, const std::string& path, int64_t resume_step)
    : last_step_(resume_step) {
  keep_lines_until(fs, path, resume_step, true, [](std::string_view line, const std::string& where) {
    return parse_metric_row(line, where).step;
  });
  file_ = fs.open_append(path);
}

void MetricsWriter::write(const MetricRow& row) {
  INGOT_CHECK(row.step > last_step_, "step {} after step {}", row.step, last_step_);
  last_step_ = row.step;
  const std::string line = to_json_line(row) + "\n";
  file_->append(line.data(), line.size());
}

void MetricsWriter::sync() {
  file_->sync();
}

}  // namespace ingot
