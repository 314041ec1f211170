// See run_diff.h.
#include "report/run_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "report/table.h"

namespace ingot {
namespace {

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

// The groups of run.json as a tree, so that one comparison serves both; what always differs is left out.
ConfigNode record_tree(const RunRecord& record) {
  ConfigNode tree;
  for (const auto& group : record.groups()) {
    if (group.name == "run") continue;
    ConfigNode table;
    table.name = group.name;
    for (const auto& entry : group.entries) {
      ConfigNode leaf;
      leaf.kind = ConfigNode::Kind::string;
      leaf.name = entry.name;
      leaf.string = value_text(entry.value);
      table.items.push_back(std::move(leaf));
    }
    tree.items.push_back(std::move(table));
  }
  return tree;
}

struct Run {
  ConfigNode config, record;
  std::vector<std::string> starts;
  std::vector<MetricRow> rows;
};

Run load(FileSystem& fs, const std::string& folder, std::span<const RenamedKey> renamed) {
  const RunRecord record = read_run_record(fs, folder);
  const std::string metrics = folder + "/" + run_files::kMetrics;
  ConfigNode config = parse_toml(record.config_toml(), folder + "/" + run_files::kConfig);
  move_renamed_keys(config, renamed);
  return {std::move(config), record_tree(record), describe_starts(record),
          fs.exists(metrics) ? read_metrics(fs, metrics) : std::vector<MetricRow>{}};
}

// Pairs of rows with the same step.
std::vector<std::pair<const MetricRow*, const MetricRow*>> common_rows(const Run& a, const Run& b) {
  std::vector<std::pair<const MetricRow*, const MetricRow*>> out;
  auto right = b.rows.begin();
  for (const MetricRow& row : a.rows) {
    while (right != b.rows.end() && right->step < row.step) ++right;
    if (right != b.rows.end() && right->step == row.step) out.emplace_back(&row, &*right);
  }
  return out;
}

std::string difference_text(const std::string& title, const std::vector<ConfigDifference>& differences) {
  if (differences.empty()) return title + ": equal\n";
  Table table({words(""), words(""), words("")}, title + ":");
  for (const auto& d : differences) table.add({"  " + d.path, d.left, "->  " + d.right});
  return table.text();
}

}  // namespace

RunDifference compare_runs(FileSystem& fs, const std::string& left_folder, const std::string& right_folder,
                           std::span<const RenamedKey> renamed) {
  const Run left = load(fs, left_folder, renamed), right = load(fs, right_folder, renamed);
  RunDifference difference;
  difference.config = diff_config(left.config, right.config);
  difference.record = diff_config(left.record, right.record);
  difference.left_starts = left.starts;
  difference.right_starts = right.starts;
  difference.left_steps = left.rows.empty() ? 0 : left.rows.back().step;
  difference.right_steps = right.rows.empty() ? 0 : right.rows.back().step;
  const auto common = common_rows(left, right);
  for (const auto& [a, b] : common) {
    const double* loss_a = a->scalar("loss");
    const double* loss_b = b->scalar("loss");
    if (loss_a == nullptr || loss_b == nullptr || same_bits(*loss_a, *loss_b)) continue;
    difference.first_loss_difference = a->step;
    break;
  }
  size_t last = common.size();
  for (size_t i = 0; i < 6 && !common.empty(); ++i) {
    const size_t index = i * (common.size() - 1) / 5;
    if (index == last) continue;
    last = index;
    const auto& [a, b] = common[index];
    for (const auto& [name, value] : a->scalars)
      if (const double* other = b->scalar(name); other != nullptr && !same_bits(value, *other))
        difference.metrics.push_back({name, a->step, value, *other});
  }
  return difference;
}

std::string to_text(const RunDifference& difference, const std::string& left, const std::string& right) {
  std::string out = fmt::format("left   {} ({} steps)\nright  {} ({} steps)\n\n", left, difference.left_steps,
                                right, difference.right_steps);
  out += difference_text("recipe", difference.config);
  out += difference_text("build, machine and model", difference.record);
  for (const auto& [name, starts] :
       {std::pair(&left, &difference.left_starts), {&right, &difference.right_starts}})
    for (const std::string& line : *starts) out += fmt::format("{}: {}\n", *name, line);
  const int64_t common = std::min(difference.left_steps, difference.right_steps);
  if (difference.first_loss_difference) {
    out += fmt::format("loss: differs from step {} on\n", *difference.first_loss_difference);
  } else if (common > 0) {
    out += fmt::format("loss: bit for bit equal up to step {}\n", common);
  } else {
    out += "loss: no step in common\n";
  }
  // Timings differ in any two runs and say little about them.
  const auto is_timing = [](const std::string& name) {
    return name.find("second") != name.npos || name.rfind("time/", 0) == 0 || name == "percent_of_roofline" ||
           name == "memory_bytes";
  };
  Table table({{.title = "step"},
               words("metric"),
               {.title = "left", .format = "{:.7g}"},
               {.title = "right", .format = "{:.7g}"},
               {.title = "difference", .format = "{:+.3g}"}});
  for (const auto& metric : difference.metrics)
    if (!is_timing(metric.name))
      table.add({metric.step, metric.name, metric.left, metric.right, metric.right - metric.left});
  return out + text_of({table});
}

}  // namespace ingot
