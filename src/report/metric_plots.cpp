// See metric_plots.h.
#include "report/metric_plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/progress.h"
#include "report/plot.h"
#include "report/reason_plots.h"

namespace ingot {
namespace {

using Rows = std::vector<MetricRow>;

constexpr size_t kMostLines = 8;  // in one figure: as many as there are colours

// The figures of known metrics, in the order of the page. `group`: see group_of.
struct Figure {
  const char *group, *title, *subtitle;
  bool smooth = false, from_zero = true, validation = false;
  int color = 0;
};
constexpr Figure kFigures[] = {
    {.group = "val/bits_per_byte",
     .title = "Validation",
     .subtitle = "bits per byte",
     .from_zero = false,
     .validation = true,
     .color = 1},
    {.group = "lr", .title = "Learning rate", .subtitle = "of the first parameter group"},
    {.group = "grad_norm", .title = "Gradient norm", .subtitle = "before clipping", .smooth = true},
    {.group = "tokens_per_second",
     .title = "Speed",
     .subtitle = "tokens per second",
     .smooth = true,
     .color = 2},
    {.group = "percent_of_roofline",
     .title = "Percent of roofline",
     .subtitle = "shortest possible step time / measured",
     .smooth = true,
     .color = 2},
    {.group = "router/entropy",
     .title = "Balance of the experts",
     .subtitle = "entropy of the load by layer, 1 is perfect balance",
     .from_zero = false},
    {.group = "grad_norm/",
     .title = "Gradient norm by module",
     .subtitle = "before clipping",
     .smooth = true},
    {.group = "residual/rms", .title = "Residual stream", .subtitle = "root mean square by layer"},
    {.group = "update_ratio/",
     .title = "Update ratio",
     .subtitle = "size of the update / size of the weights",
     .smooth = true},
};
// Shown elsewhere: the loss, the clocks, what tiles and tables say.
constexpr const char* kShownElsewhere[] = {"loss",
                                           "val/loss",
                                           "val/tokens",
                                           "time/",
                                           "tokens",
                                           "training_seconds",
                                           "checkpoint/",
                                           "sees_future_tokens",
                                           "target/training_seconds"};

struct Name {
  std::string group, line;
};

// "val/bible/loss" is the line "bible" of the group "val/loss", "time/head" the line "head" of "time/".
Name group_of(const std::string& metric) {
  if (metric.starts_with("rl/")) return {metric, ""};  // each measures something else
  const size_t first = metric.find('/'), last = metric.rfind('/');
  if (first == metric.npos) return {metric, ""};
  if (first == last) return {metric.substr(0, first + 1), metric.substr(first + 1)};
  return {metric.substr(0, first) + metric.substr(last), metric.substr(first + 1, last - first - 1)};
}

struct NamedCurve {
  std::string name;
  int run = 0;
  MetricCurve curve;
};
using Groups = std::vector<std::pair<std::string, std::vector<NamedCurve>>>;  // in order of appearance

Groups collect(std::span<const LabelledRows> runs) {
  Groups groups;
  std::map<std::string, size_t> group_at;
  for (size_t run = 0; run < runs.size(); ++run) {
    std::map<std::string, std::pair<size_t, size_t>> line_at;
    for (const MetricRow& row : runs[run].rows)
      for (const auto& [metric, value] : row.scalars) {
        if (has_rl_figure(metric)) continue;
        auto found = line_at.find(metric);
        if (found == line_at.end()) {
          const Name name = group_of(metric);
          const auto [group, fresh] = group_at.try_emplace(name.group, groups.size());
          if (fresh) groups.push_back({name.group, {}});
          auto& lines = groups[group->second].second;
          lines.push_back({name.line, static_cast<int>(run), {}});
          found = line_at.emplace(metric, std::pair{group->second, lines.size() - 1}).first;
        }
        MetricCurve& curve = groups[found->second.first].second[found->second.second].curve;
        curve.steps.push_back(static_cast<double>(row.step));
        curve.values.push_back(value);
      }
  }
  return groups;
}

// The mean, lowest and highest of many lines of one run, at the steps of the first.
std::vector<NamedCurve> summarised(const std::vector<NamedCurve>& lines) {
  std::map<double, std::vector<double>> at;
  for (const NamedCurve& line : lines)
    for (size_t i = 0; i < line.curve.steps.size(); ++i)
      at[line.curve.steps[i]].push_back(line.curve.values[i]);
  std::vector<NamedCurve> out(3);
  const std::string names[] = {fmt::format("mean of {}", lines.size()), "lowest", "highest"};
  for (size_t i = 0; i < 3; ++i) out[i] = {names[i], lines.front().run, {}};
  for (const auto& [step, values] : at) {
    double sum = 0;
    for (const double value : values) sum += value;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const double three[] = {sum / static_cast<double>(values.size()), *low, *high};
    for (size_t i = 0; i < 3; ++i)
      out[i].curve.steps.push_back(step), out[i].curve.values.push_back(three[i]);
  }
  return out;
}

class Plots {
 public:
  explicit Plots(std::span<const LabelledRows> runs) : runs_(runs), groups_(collect(runs)) {}

  std::string html() {
    std::string out = loss_plot(), figures, others;
    for (const Figure& figure : kFigures)
      if (const auto* lines = find(figure.group))
        figures += draw(figure.validation ? validation_plot(*lines, figure) : plot_of(*lines, figure));
    for (const auto& [group, lines] : groups_)
      if (is_task(group)) {
        if (!group.ends_with("_stderr")) figures += draw(task_plot(lines, group.substr(5)));
      } else if (!known(group))
        others += draw(plot_of(
            lines,
            {.group = "", .title = group.c_str(), .subtitle = "", .smooth = true, .from_zero = false}));
    if (!figures.empty()) out += "<div class=grid2>" + figures + "</div>";
    if (!others.empty())
      out += "<details class=more><summary>All other metrics</summary><div class=grid2>" + others +
             "</div></details>";
    return out;
  }

 private:
  const std::vector<NamedCurve>* find(const std::string& group) const {
    for (const auto& [name, lines] : groups_)
      if (name == group) return &lines;
    return nullptr;
  }

  static bool is_task(const std::string& group) { return group.starts_with("task/") && group.size() > 5; }
  /// Of each task that has the metric a line, with a mark where it ran.
  LinePlot task_plot(const std::vector<NamedCurve>& lines, const std::string& metric) const {
    LinePlot plot = plot_over("Tasks", metric);
    for (size_t i = 0; i < lines.size(); ++i)
      add(plot, lines[i], name_of(lines[i], ""), static_cast<int>(i), false, true);
    return plot;
  }

  static bool known(const std::string& group) {
    const auto is = [&](const auto& name) { return group == name; };
    return std::any_of(std::begin(kShownElsewhere), std::end(kShownElsewhere), is) ||
           std::any_of(std::begin(kFigures), std::end(kFigures),
                       [&](const Figure& f) { return is(f.group); });
  }

  LinePlot plot_over(const std::string& title, const std::string& subtitle) const {
    LinePlot plot;
    plot.title = title;
    plot.subtitle = subtitle;
    for (const LabelledRows& run : runs_) {
      if (run.rows.empty()) continue;
      plot.x_begin = std::fmin(plot.x_begin, static_cast<double>(run.rows.front().step));
      plot.x_end = std::fmax(plot.x_end, static_cast<double>(run.rows.back().step));
    }
    return plot;
  }

  // "run: line", with what of it there is.
  std::string name_of(const NamedCurve& line, const std::string& otherwise) const {
    if (runs_.size() < 2) return line.name.empty() ? otherwise : line.name;
    const std::string& run = runs_[static_cast<size_t>(line.run)].label;
    return line.name.empty() ? run : run + ": " + line.name;
  }

  void add(LinePlot& plot, const NamedCurve& line, const std::string& name, int color, bool smooth,
           bool markers) const {
    PlotSeries series;
    series.name = name;
    series.x = line.curve.steps;
    series.y = line.curve.values;
    series.color = color % static_cast<int>(kMostLines);
    series.run = line.run;
    series.smooth = smooth;
    series.markers = markers;
    plot.series.push_back(std::move(series));
  }

  // A colour a line: where each of several runs has one line, a run has the same colour in every figure.
  LinePlot plot_of(const std::vector<NamedCurve>& all, const Figure& figure) const {
    LinePlot plot = plot_over(figure.title, figure.subtitle);
    plot.from_zero = figure.from_zero;
    plot.percent = std::string_view(figure.group).starts_with("percent");
    std::vector<NamedCurve> lines;
    for (size_t run = 0; run < runs_.size(); ++run) {
      std::vector<NamedCurve> of_run;
      for (const NamedCurve& line : all)
        if (line.run == static_cast<int>(run)) of_run.push_back(line);
      if (of_run.size() > kMostLines) of_run = summarised(of_run);
      lines.insert(lines.end(), of_run.begin(), of_run.end());
    }
    for (size_t i = 0; i < lines.size(); ++i)
      add(plot, lines[i], name_of(lines[i], figure.title),
          (runs_.size() > 1 ? 0 : figure.color) + static_cast<int>(i), figure.smooth, false);
    if (lines.size() == 1 && !lines[0].name.empty()) plot.title += ": " + lines[0].name;
    return plot;
  }

  // A validation that reads more of a source than those before it (the last of a run reads all of it) is
  // another measurement: a line of its own, in the same colour.
  void add_validation(LinePlot& plot, const NamedCurve& line, const std::string& name, int color) const {
    const MetricCurve read =
        curve_of(runs_[static_cast<size_t>(line.run)].rows, "val/" + line.name + "/tokens");
    const bool known = read.values.size() == line.curve.values.size();
    NamedCurve part = line, whole = line;
    part.curve = whole.curve = {};
    for (size_t i = 0; i < line.curve.steps.size(); ++i) {
      MetricCurve& to = known && read.values[i] > read.values[0] ? whole.curve : part.curve;
      to.steps.push_back(line.curve.steps[i]), to.values.push_back(line.curve.values[i]);
    }
    add(plot, part, name, color, false, true);
    if (!whole.curve.steps.empty()) add(plot, whole, name + ", all tokens", color, false, true);
  }

  LinePlot validation_plot(const std::vector<NamedCurve>& lines, const Figure& figure) const {
    LinePlot plot = plot_over(figure.title, figure.subtitle + mark());
    for (size_t i = 0; i < lines.size(); ++i)
      add_validation(plot, lines[i], name_of(lines[i], ""), figure.color + static_cast<int>(i));
    return plot;
  }

  std::string mark() const {
    std::string mark;
    for (const LabelledRows& run : runs_)
      if (mark.empty()) mark = mark_of_losses(run.rows);
    return mark;
  }

  // Training and validation in one figure.
  std::string loss_plot() const {
    LinePlot plot = plot_over("Loss", "nats per token" + mark());
    plot.height = 330;
    plot.most_points = 720;
    int color = 0;
    if (const auto* training = find("loss"))
      for (const NamedCurve& line : *training)
        add(plot, line, name_of(line, "training"), color++, true, false);
    if (const auto* validation = find("val/loss"))
      for (const NamedCurve& line : *validation)
        add_validation(plot, line, "validation: " + name_of(line, ""), color++);
    return plot.series.empty() ? "" : draw(plot);
  }

  std::span<const LabelledRows> runs_;
  Groups groups_;
};

}  // namespace

std::string mark_of_losses(const Rows& rows) {
  const bool sees = !rows.empty() && rows.back().scalar("sees_future_tokens") != nullptr;
  return sees ? ", later tokens seen (expert choice)" : "";
}

MetricCurve curve_of(const Rows& rows, const std::string& metric) {
  MetricCurve curve;
  for (const MetricRow& row : rows)
    if (const double* value = row.scalar(metric)) {
      curve.steps.push_back(static_cast<double>(row.step));
      curve.values.push_back(*value);
    }
  return curve;
}

std::vector<std::string> middles(const Rows& rows, const std::string& prefix, const std::string& suffix,
                                 bool lists) {
  std::vector<std::string> out;
  const auto look = [&](const std::string& name) {
    if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix))
      return;
    std::string middle = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    if (std::find(out.begin(), out.end(), middle) == out.end()) out.push_back(std::move(middle));
  };
  for (const MetricRow& row : rows) {
    if (lists) {
      for (const auto& entry : row.lists) look(entry.first);
    } else {
      for (const auto& entry : row.scalars) look(entry.first);
    }
  }
  return out;
}

std::string metric_plots(std::span<const LabelledRows> runs) {
  const bool any = std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.rows.empty(); });
  return any ? Plots(runs).html() : "";
}

std::string clocks_json(std::span<const LabelledRows> runs) {
  constexpr size_t kPoints = 400;
  std::string out = "[";
  for (const LabelledRows& run : runs) {
    std::vector<double> steps, tokens, hours;
    double seconds = 0;
    const size_t stride = std::max<size_t>(1, run.rows.size() / kPoints);
    for (size_t i = 0; i < run.rows.size(); ++i) {
      const MetricRow& row = run.rows[i];
      if (const double* s = row.scalar("step_seconds"); s != nullptr && std::isfinite(*s)) seconds += *s;
      if (i % stride != 0 && i + 1 != run.rows.size()) continue;
      const double* read = row.scalar("tokens");
      steps.push_back(static_cast<double>(row.step));
      tokens.push_back(read != nullptr && std::isfinite(*read) ? *read : 0);
      hours.push_back(seconds / 3600);
    }
    out += fmt::format("{}{{\"step\":{},\"tokens\":{},\"hours\":{}}}", out.size() > 1 ? "," : "",
                       number_list(steps), number_list(tokens), number_list(hours));
  }
  return out + "]";
}

}  // namespace ingot
