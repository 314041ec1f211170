// See reason_plots.h.
#include "report/reason_plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/config_node.h"
#include "base/error.h"
#include "base/progress.h"
#include "report/plot.h"
#include "report/table.h"

namespace ingot {
namespace {

using Rows = std::vector<MetricRow>;

std::string with_error(double value, std::optional<double> error) {
  return error ? fmt::format("{:.1f} ± {:.1f}", 100 * value, 100 * *error)
               : fmt::format("{:.1f}", 100 * value);
}

// The last value of a metric at steps in (after, last]; nullptr where there is none.
const MetricRow* last_measured(const Rows& rows, const std::string& metric, int64_t after, int64_t last) {
  const MetricRow* found = nullptr;
  for (const MetricRow& row : rows)
    if (row.step > after && row.step <= last && row.scalar(metric) != nullptr) found = &row;
  return found;
}

struct RlFigure {
  const char *title, *subtitle;
  std::vector<std::string> metrics;  // "rl/reward"; with a "/" at the end all that begin so
  bool from_zero = true;
};
const std::vector<RlFigure>& rl_figures() {
  static const std::vector<RlFigure> figures = {
      {"Reward", "mean of all replies; by environment", {"rl/reward", "rl/reward/"}},
      {"Difficulty", "frontier of each environment", {"rl/difficulty/"}},
      {"Length of replies", "tokens", {"rl/length", "rl/length/"}},
      {"Entropy", "nats per token", {"rl/entropy"}},
      {"Candidates", "prompts that show some", {"rl/aggregation/"}},
      {"Groups with signal", "replies of different reward", {"rl/signal"}},
      {"Replies that went wrong", "share", {"rl/truncated", "rl/repetition", "rl/gibberish"}},
      {"Distance from the recorded policy", "KL, nats per token", {"rl/kl"}}};
  return figures;
}

bool names(const RlFigure& figure, const std::string& metric) {
  return std::any_of(figure.metrics.begin(), figure.metrics.end(), [&](const std::string& wanted) {
    return wanted.ends_with('/') ? metric.starts_with(wanted) : metric == wanted;
  });
}

// The metrics of the rows that a figure names, in order of appearance.
std::vector<std::string> named_metrics(const Rows& rows, const RlFigure& figure) {
  std::vector<std::string> found;
  for (const MetricRow& row : rows)
    for (const auto& [name, value] : row.scalars)
      if (names(figure, name) && std::find(found.begin(), found.end(), name) == found.end())
        found.push_back(name);
  return found;
}

LinePlot rl_plot(std::span<const LabelledRows> runs, const RlFigure& figure) {
  LinePlot plot{.title = figure.title, .subtitle = figure.subtitle, .series = {}};
  plot.from_zero = figure.from_zero;
  for (size_t run = 0; run < runs.size(); ++run)
    for (const std::string& metric : named_metrics(runs[run].rows, figure)) {
      const size_t slash = metric.rfind('/');
      const std::string line = slash == 2 ? "all" : metric.substr(slash + 1);
      const MetricCurve curve = curve_of(runs[run].rows, metric);
      PlotSeries series;
      series.name = runs.size() > 1 ? runs[run].label + (line == "all" ? "" : ": " + line) : line;
      series.x = curve.steps, series.y = curve.values;
      series.color = static_cast<int>(plot.series.size()) % 8, series.run = static_cast<int>(run);
      series.smooth = true;
      plot.series.push_back(std::move(series));
    }
  return plot;
}

// How often the recorded log-probabilities were those of training, in words.
std::string exactness_words(const LabelledRows& run) {
  double compared = 0, unequal = 0;
  for (const MetricRow& row : run.rows) {
    if (const double* value = row.scalar("rl/compared"); value != nullptr) compared += *value;
    if (const double* value = row.scalar("rl/unequal"); value != nullptr) unequal += *value;
  }
  if (!(compared > 0)) return "";
  const std::string counts = fmt::format("{} of {}", group_digits(static_cast<int64_t>(unequal)),
                                         group_digits(static_cast<int64_t>(compared)));
  return fmt::format(
      "<p class=none>{}unequal: {} log-probabilities that were recorded when replies were sampled "
      "have other bits than those that training computes{}</p>",
      run.label.empty() ? "" : escape_html(run.label) + ": ", counts,
      unequal == 0 ? "; the first update of every batch is exactly on-policy" : "");
}

std::string method_of(const ReasonResult& r) {
  std::string text = fmt::format("rsa {} {} {}", r.population, r.candidates, r.rounds.size() - 1);
  return r.compaction == "tail" ? text : text + " " + r.compaction;
}

std::string line_name(const ReasonResult& r, const std::string& method) {
  return r.name.empty() ? method : fmt::format("{}, {}", method, r.name);
}

// Of one line: % right by log2 of the tokens decoded.
using TokensToRight = std::map<double, double>;

LinePlot accuracy_plot(const std::string& problems, const std::vector<ReasonResult>& results) {
  LinePlot plot{.title = problems, .subtitle = "% right over tokens decoded for a problem", .series = {}};
  plot.tokens_x = plot.percent = true;
  std::vector<std::pair<std::string, TokensToRight>> lines;
  const auto add = [&](const std::string& name, double tokens, double right) {
    if (!(tokens > 0)) return;
    auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == name; });
    if (found == lines.end()) found = lines.insert(lines.end(), {name, {}});
    found->second[std::log2(tokens)] = 100 * right;
  };
  for (const ReasonResult& r : results) {
    if (r.problems != problems) continue;
    const ReasonRound& first = r.rounds.front();
    add(line_name(r, "single and majority"), first.tokens / static_cast<double>(r.population), first.right);
    if (r.population > 1) add(line_name(r, "single and majority"), first.tokens, first.majority);
    for (size_t t = 1; t < r.rounds.size(); ++t)
      add(line_name(r, method_of(r)), r.rounds[t].tokens, r.rounds[t].right);
  }
  for (const auto& [name, points] : lines)
    for (const auto& [x, y] : points) add_point(plot, name, x, y);
  return plot;
}

Table reason_table(const std::vector<ReasonResult>& results) {
  Table table({ingot::words("problems"), ingot::words("model"), ingot::words("method"),
               ingot::number("right %", 1), ingot::number("tokens", 0), ingot::words("prompts, at most")},
              "Tokens generated for a problem, prompts not counted");
  for (const ReasonResult& r : results) {
    const ReasonRound& first = r.rounds.front();
    const auto samples = static_cast<double>(r.population);
    const std::string prompt = fmt::format("{}", group_digits(first.longest_prompt));
    table.add({r.problems, r.name, "single", with_error(first.right, first.right_error),
               first.tokens / samples, prompt});
    if (r.population > 1)
      table.add({r.problems, r.name, fmt::format("majority of {}", r.population),
                 with_error(first.majority, first.majority_error), first.tokens, prompt});
    for (size_t t = 1; t < r.rounds.size(); ++t)
      table.add(
          {r.problems, r.name, fmt::format("{}, round {}", method_of(r), t),
           with_error(r.rounds[t].right, r.rounds[t].right_error), r.rounds[t].tokens,
           fmt::format("{} of {}", group_digits(r.rounds[t].longest_prompt), group_digits(r.prompt_bound))});
  }
  return table;
}

}  // namespace

std::vector<PhaseEnd> phase_ends(const std::string& config_toml) {
  std::vector<PhaseEnd> ends;
  if (config_toml.empty()) return ends;
  try {
    const ConfigNode root = parse_toml(config_toml, "config.toml");
    const ConfigNode* phases = root.find("phases");
    if (phases == nullptr) return ends;
    int64_t step = 0;
    for (const ConfigNode& phase : phases->items) {
      const ConfigNode *name = phase.find("name"), *steps = phase.find("steps");
      if (name == nullptr || steps == nullptr) return {};
      step += steps->integer;
      ends.push_back({name->string, step});
    }
  } catch (const Error&) {  // of an older program: the page goes without
    return {};
  }
  return ends;
}

std::string phase_bars(const Rows& rows, std::span<const PhaseEnd> phases) {
  std::vector<std::string> metrics;
  for (const MetricRow& row : rows)
    for (const auto& [name, value] : row.scalars)
      if (name.starts_with("task/") && !name.ends_with("_stderr") && name.rfind('/') > 5 &&
          std::find(metrics.begin(), metrics.end(), name) == metrics.end())
        metrics.push_back(name);
  std::string cards;
  for (const std::string& metric : metrics) {
    std::vector<Bar> bars;
    int64_t after = 0;
    bool share = true;
    for (const PhaseEnd& phase : phases) {
      const MetricRow* row =
          last_measured(rows, metric, std::exchange(after, phase.last_step), phase.last_step);
      if (row == nullptr) continue;
      const double value = *row->scalar(metric);
      const double* error = row->scalar(metric + "_stderr");
      if (!std::isfinite(value)) continue;
      share = share && value >= 0 && value <= 1;
      bars.push_back({.name = phase.name,
                      .label = {},
                      .value = value,
                      .error = error != nullptr && std::isfinite(*error) ? *error : 0});
    }
    if (bars.size() < 2) continue;
    for (Bar& bar : bars)
      bar.label = share
                      ? with_error(bar.value, bar.error > 0 ? std::optional(bar.error) : std::nullopt) + " %"
                      : short_number(bar.value);
    const size_t slash = metric.rfind('/');
    cards += draw_bars(metric.substr(5, slash - 5), metric.substr(slash + 1), bars, share ? 1 : 0);
  }
  return cards.empty() ? "" : "<h2>What each phase solves</h2><div class=grid2>" + cards + "</div>";
}

bool has_rl_figure(const std::string& metric) {
  return std::any_of(rl_figures().begin(), rl_figures().end(),
                     [&](const RlFigure& figure) { return names(figure, metric); });
}

std::string rl_section(std::span<const LabelledRows> runs) {
  std::string figures, exact;
  for (const RlFigure& figure : rl_figures())
    if (const LinePlot plot = rl_plot(runs, figure); !plot.series.empty()) figures += draw(plot);
  for (const LabelledRows& run : runs) exact += exactness_words({runs.size() > 1 ? run.label : "", run.rows});
  return figures.empty()
             ? ""
             : "<h2>Reinforcement learning</h2>" + exact + "<div class=grid2>" + figures + "</div>";
}

std::string reason_section(const std::vector<ReasonResult>& results) {
  if (results.empty()) return "";
  std::string figures;
  std::vector<std::string> seen;
  for (const ReasonResult& r : results)
    if (std::find(seen.begin(), seen.end(), r.problems) == seen.end()) {
      seen.push_back(r.problems);
      figures += draw(accuracy_plot(r.problems, results));
    }
  return "<h2>Test-time compute</h2><div class=grid2>" + figures +
         "</div><div class='stack'><div class='scroll'>" + reason_table(results).html() + "</div></div>";
}

}  // namespace ingot
