// See report.h.
#include "report/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/spread.h"
#include "report/metric_plots.h"
#include "report/plot.h"
#include "report/profile_plots.h"
#include "report/reason_plots.h"
#include "report/report_assets.h"
#include "report/table.h"

namespace ingot {
namespace {

using Rows = std::vector<MetricRow>;

double median_of(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double v) { return !std::isfinite(v); }),
               values.end());
  if (values.empty()) return std::nan("");
  return spread_of(std::move(values)).median;
}

double mean_of_last(const std::vector<double>& values, size_t count) {
  double sum = 0;
  count = std::min(count, values.size());
  for (size_t i = values.size() - count; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

/// The validation that stands for a source: of all its tokens, where a run measured that; else the best of
/// the part that it reads.
struct Headline {
  std::string source;
  double bits_per_byte = 0, step = 0, tokens = 0;  ///< tokens: 0 if not known
  bool all = false;                                ///< of the source's held-out tokens
};

std::vector<Headline> headlines(const Rows& rows) {
  std::vector<Headline> out;
  for (const auto& source : middles(rows, "val/", "/bits_per_byte")) {
    const MetricCurve bits = curve_of(rows, "val/" + source + "/bits_per_byte");
    const MetricCurve tokens = curve_of(rows, "val/" + source + "/tokens");
    const bool known = tokens.values.size() == bits.values.size();
    Headline best{.source = source, .bits_per_byte = INFINITY};
    for (size_t i = 0; i < bits.values.size(); ++i) {
      const double read = known ? tokens.values[i] : 0;
      const bool more = read > best.tokens;
      if (!std::isfinite(bits.values[i]) || read < best.tokens) continue;
      if (!more && !(bits.values[i] < best.bits_per_byte)) continue;
      best = {source, bits.values[i], bits.steps[i], read, known && read > tokens.values[0]};
    }
    if (std::isfinite(best.bits_per_byte)) out.push_back(best);
  }
  return out;
}

std::string detail_of(const Headline& h) {
  const std::string step = "step " + group_digits(static_cast<int64_t>(h.step));
  if (h.tokens == 0) return step;
  return fmt::format("{}{} tokens, {}", h.all ? "all " : "", group_digits(static_cast<int64_t>(h.tokens)),
                     step);
}

/// A result of a run: in the tiles of its page and in the table that compares runs.
struct Fact {
  std::string value, unit, label, detail;
};

std::vector<Fact> facts_of(const ReportData& data) {
  const Rows& rows = data.rows;
  std::vector<Fact> out;
  const auto add = [&](std::string value, std::string unit, std::string label, std::string detail = {}) {
    out.push_back({std::move(value), std::move(unit), std::move(label), std::move(detail)});
  };
  const auto values = [&](const char* metric) { return curve_of(rows, metric).values; };
  if (const auto loss = values("loss"); !loss.empty())
    add(fmt::format("{:.3f}", mean_of_last(loss, 20)), "", "training loss",
        "mean of the last 20 steps" + mark_of_losses(rows));
  for (const Headline& h : headlines(rows))
    add(fmt::format("{:.3f}", h.bits_per_byte), "", "bits per byte, validation of " + h.source,
        detail_of(h) + mark_of_losses(rows));
  if (const auto tokens = values("tokens"); !tokens.empty())
    add(format_count(tokens.back()), "", "training tokens");
  if (const auto speed = values("tokens_per_second"); !speed.empty())
    add(format_count(median_of(speed)), "", "tokens per second", "median");
  if (const auto roofline = values("percent_of_roofline"); !roofline.empty())
    add(fmt::format("{:.0f}", median_of(roofline)), "%", "of roofline", "median");
  const auto* active = data.record.find("model", "active parameters");
  const auto* total = data.record.find("model", "parameters");
  if (active != nullptr && total != nullptr && std::holds_alternative<int64_t>(*active) &&
      std::holds_alternative<int64_t>(*total))
    add(format_count(static_cast<double>(std::get<int64_t>(*total))), "", "parameters",
        format_count(static_cast<double>(std::get<int64_t>(*active))) + " active");
  for (const auto& phase : middles(rows, "target/", "/training_seconds")) {
    const MetricCurve time = curve_of(rows, "target/" + phase + "/training_seconds");
    add(format_seconds(time.values.front()), "", "training time to the target of " + phase,
        "step " + group_digits(static_cast<int64_t>(time.steps.front())));
  }
  if (const auto time = values("step_seconds"); !time.empty()) {
    double sum = 0;
    for (const double value : time) sum += std::isfinite(value) ? value : 0;
    add(format_seconds(sum), "", "training time", "without validation and checkpoints");
  }
  return out;
}

std::string tiles(const ReportData& data) {
  std::string out = "<div class=tiles>";
  for (const Fact& fact : facts_of(data))
    out += fmt::format("<div class=tile><b>{}{}</b><span>{}</span></div>", escape_html(fact.value),
                       fact.unit.empty() ? "" : "<small>" + escape_html(fact.unit) + "</small>",
                       escape_html(fact.label + (fact.detail.empty() ? "" : ", " + fact.detail)));
  return out + "</div>";
}

std::string time_bars(const Rows& rows) {
  std::map<std::string, double> seconds;
  double sum = 0;
  for (const MetricRow& row : rows)
    for (const auto& [name, value] : row.scalars)
      if (name.starts_with("time/") && std::isfinite(value)) seconds[name.substr(5)] += value, sum += value;
  if (seconds.empty()) return "";
  return draw_time_bars("Time by operation", "total " + format_seconds(sum), seconds, sum, 10);
}

std::string router_section(const Rows& rows) {
  const auto layers = middles(rows, "router/", "/load", true);
  if (layers.empty()) return "";
  std::string out =
      "<h2>Experts</h2><div class=card><figcaption><b>Load of each expert</b><span>rows are experts, columns "
      "are steps</span></figcaption><div class=maps>";
  for (const auto& layer : layers) {
    HeatMap map;
    map.title = "layer " + layer;
    for (const MetricRow& row : rows)
      if (const auto* load = row.list("router/" + layer + "/load")) {
        map.x.push_back(static_cast<double>(row.step));
        map.values.push_back(*load);
        for (double& value : map.values.back()) value *= static_cast<double>(load->size());
      }
    out += draw(map);
  }
  return out + "</div><div class=scale>unused<i></i>twice its share or more</div></div>";
}

std::string checkpoint_table(const Rows& rows) {
  Table table({words("after step"), words("checkpoint pause")}, "Checkpoints");
  for (const MetricRow& row : rows)
    if (const double* seconds = row.scalar("checkpoint/seconds"))
      table.add({group_digits(row.step - 1), format_seconds(*seconds)});
  return table.html();
}

std::string shown_value(const std::string& name, const RunRecord::Value& value) {
  double number = std::nan("");
  if (const auto* integer = std::get_if<int64_t>(&value)) number = static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  if (!std::isfinite(number)) return value_text(value);
  if (name.ends_with("_bytes")) return format_bytes(number);
  if (name.ends_with("_seconds")) return format_seconds(number);
  if (const auto* integer = std::get_if<int64_t>(&value)) return group_digits(*integer);
  return short_number(number);
}

std::string readable_name(std::string name) {
  for (const char* suffix : {"_bytes", "_seconds"})
    if (name.ends_with(suffix)) name.resize(name.size() - std::string(suffix).size());
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string record_tables(const ReportData& data) {
  std::string out;
  for (const auto& group : data.record.groups()) {
    std::string title = readable_name(group.name);
    if (!title.empty() && title[0] >= 'a' && title[0] <= 'z')
      title[0] = static_cast<char>(title[0] - 'a' + 'A');
    Table table({words(""), words("")}, title);
    for (const auto& entry : group.entries)
      table.add({readable_name(entry.name), shown_value(entry.name, entry.value)});
    out += table.html();
  }
  return "<h2>Details</h2><div class=columns>" + out + checkpoint_table(data.rows) + "</div>";
}

/// How the run was started and resumed: the commands, and what each changed.
std::string start_section(const RunRecord& record) {
  if (record.starts().empty()) return "";
  Table table({words("start"), words("at step"), words("time"), words("command"), words("what it changed")});
  const std::vector<std::string> changes = start_changes(record);
  for (size_t i = 0; i < changes.size(); ++i) {
    const RunRecord::Start& start = record.starts()[i];
    table.add({std::to_string(i + 1), start.text("first step"), start.text("time"), start.text("command"),
               i > 0 && changes[i].empty() ? "nothing" : changes[i]});
  }
  return "<h2>Starts</h2><div class=scroll>" + table.html() + "</div>";
}

/// What the last start that measured predicted, beside it.
std::string prediction_section(const RunRecord& record) {
  for (size_t i = record.starts().size(); i-- > 0;)
    if (const std::vector<Prediction>& all = record.starts()[i].predictions; !all.empty())
      return "<h2>Predicted and measured</h2><div class=scroll>" +
             prediction_table(worst_of_each(all), "").html() + "</div>";
  return "";
}

std::string config_section(const std::string& toml) {
  if (toml.empty()) return "";
  std::string body;
  for (size_t begin = 0; begin < toml.size();) {
    const size_t end = std::min(toml.find('\n', begin), toml.size());
    const std::string line = toml.substr(begin, end - begin);
    begin = end + 1;
    // Comments that print_config wrote follow two blanks; a '#' inside a string does not end in colour.
    const size_t mark = line.rfind("  # ");
    if (!line.empty() && (line[0] == '[' || line[0] == '#')) {
      const char* tag = line[0] == '[' ? "b" : "i";
      body += fmt::format("<{}>{}</{}>\n", tag, escape_html(line), tag);
    } else if (mark != line.npos) {
      body += escape_html(line.substr(0, mark)) + "<i>" + escape_html(line.substr(mark)) + "</i>\n";
    } else {
      body += escape_html(line) + "\n";
    }
  }
  return "<h2>Configuration</h2><div class=card><details><summary>The complete resolved "
         "recipe</summary><pre>" +
         body + "</pre></details></div>";
}

std::string one_sample(const Sample& sample) {
  return fmt::format(
      "<div class=card><figcaption><span>step {}</span></figcaption><p class=sample><em>{}</em>{}</p></div>",
      group_digits(sample.step), escape_html(sample.prompt), escape_html(sample.text));
}

std::string sample_section(const std::vector<Sample>& samples) {
  if (samples.empty()) return "";
  std::string out = "<h2>Samples</h2><div class=stack>", older;
  const size_t shown = 3;
  for (size_t i = samples.size(); i-- > 0;)
    (samples.size() - i <= shown ? out : older) += one_sample(samples[i]);
  if (!older.empty())
    out += fmt::format("<details><summary>{} earlier</summary><div class=stack>{}</div></details>",
                       samples.size() - shown, older);
  return out + "</div>";
}

// Colours of the 17 levels of a heat map (plot.cpp): below, neutral, above.
std::string heat_style() {
  std::string out;
  for (int level = 0; level <= 16; ++level)
    out += fmt::format(".h{}{{fill:color-mix(in oklab, var(--{}) {}%, var(--neutral))}}", level,
                       level < 8 ? "below" : "above", std::abs(level - 8) * 100 / 8);
  return out + ".h107{fill:none}";
}

std::string text_of(const RunRecord& record, const char* group, const char* name) {
  const auto* value = record.find(group, name);
  return value != nullptr ? value_text(*value) : std::string();
}

int64_t planned_steps(const RunRecord& record) {
  const auto* steps = record.find("plan", "steps");
  return steps != nullptr && std::holds_alternative<int64_t>(*steps) ? std::get<int64_t>(*steps) : 0;
}

// The seconds that a step takes with all that stands between steps: of the last fifty.
double recent_step_seconds(const Rows& rows) {
  if (rows.size() < 2) return std::nan("");
  const MetricRow& last = rows.back();
  const MetricRow& before = rows[rows.size() - std::min<size_t>(rows.size(), 50)];
  return (last.wall - before.wall) / static_cast<double>(last.step - before.step);
}

// "running, step 300 of 1,400, 3 m 10 s left".
std::string state_of(const ReportData& data) {
  const int64_t total = planned_steps(data.record), step = data.rows.empty() ? 0 : data.rows.back().step;
  const std::string at = total > 0 ? fmt::format("step {} of {}", group_digits(step), group_digits(total))
                                   : fmt::format("step {}", group_digits(step));
  if (!data.running) return (total > 0 && step >= total ? "finished, " : "stopped, ") + at;
  const double left = recent_step_seconds(data.rows) * static_cast<double>(total - step);
  return "running, " + at + (left > 0 && std::isfinite(left) ? ", " + format_seconds(left) + " left" : "");
}

// Recipe fields that differ from the first run's, a column a run.
Table settings_table(std::span<const ReportData> runs) {
  std::vector<Column> columns{words("")};
  for (const ReportData& run : runs) columns.push_back(words(run.label));
  Table table(columns);
  std::vector<std::string> paths;  // in order of appearance
  std::map<std::string, std::vector<std::string>> values;
  const auto config = [](const ReportData& run) { return parse_toml(run.record.config_toml(), run.label); };
  for (size_t i = 1; i < runs.size(); ++i)
    for (const ConfigDifference& d : diff_config(config(runs[0]), config(runs[i]))) {
      auto& row = values[d.path];
      if (row.empty()) paths.push_back(d.path), row.resize(runs.size(), d.left);
      row[i] = d.right;
    }
  for (const std::string& path : paths) {
    std::vector<Cell> cells{path};
    cells.insert(cells.end(), values[path].begin(), values[path].end());
    table.add(std::move(cells));
  }
  return table;
}

// What the script needs beside the plots, and what the reader can change in all of them.
std::string controls(std::span<const LabelledRows> runs) {
  return "<script type='application/json' id=clocks>" + clocks_json(runs) +
         "</script><div class=tools><label>x axis <select data-view=x><option value=step>steps<option "
         "value=tokens>tokens<option value=hours>hours</select></label><label><input type=checkbox "
         "data-view=logx> log x</label><label><input type=checkbox data-view=logy> log y</label><label>"
         "smoothing <select data-view=smooth><option value=0>none<option value=2>2 %<option value=6>6 %"
         "<option value=20>20 %</select></label><button data-view=reset hidden>show all</button><i>drag in a "
         "plot to zoom, double-click to go back</i></div>";
}

constexpr double kReportSeconds = 15;  // between two pages of a run that is training

const std::string kNoScript =
    "<noscript><p class=none>The plots are drawn by the script in this page: allow it to run.</p></noscript>";

}  // namespace

std::string render_report(const ReportData& data) {
  const LabelledRows rows{data.label, data.rows};
  std::string facts = text_of(data.record, "run", "started");
  if (!facts.empty()) facts += " · ";
  std::string body;
  if (data.running && !data.rows.empty())
    body += fmt::format(
        "<p class=none data-live={:.0f} data-patience={:.0f}>as of step {}; this page reads "
        "itself again while it is open</p>",
        data.rows.back().wall, std::fmax(120, 20 * recent_step_seconds(data.rows)),
        group_digits(data.rows.back().step));
  if (!data.rows.empty())
    body += tiles(data) + controls({&rows, 1}) + kNoScript + metric_plots({&rows, 1}) + "<div class=stack>" +
            time_bars(data.rows) + "</div>" + phase_bars(data.rows, phase_ends(data.record.config_toml())) +
            rl_section({&rows, 1}) + reason_section(data.reasoning) + router_section(data.rows);
  body += data.profile + sample_section(data.samples);
  body += start_section(data.record) + prediction_section(data.record) + record_tables(data) +
          config_section(data.record.config_toml());
  return render_page(text_of(data.record, "run", "name"), facts + state_of(data),
                     text_of(data.record, "build", "ingot"), body);
}

std::string render_comparison(std::span<const ReportData> runs) {
  std::vector<LabelledRows> rows;
  std::vector<Column> columns{words("")};
  for (const ReportData& run : runs) {
    rows.push_back({run.label, run.rows});
    columns.push_back(words(run.label));
  }
  std::vector<std::string> labels;  // of facts, in order of appearance
  std::map<std::string, std::vector<std::string>> values;
  const auto put = [&](const std::string& label, size_t run, const std::string& value) {
    auto& row = values[label];
    if (row.empty()) labels.push_back(label), row.resize(runs.size());
    row[run] = value;
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    put("state", i, state_of(runs[i]));
    for (const Fact& fact : facts_of(runs[i]))
      put(fact.label, i, fact.value + fact.unit + (fact.detail.empty() ? "" : ", " + fact.detail));
  }
  Table results(columns, "Results");
  for (const std::string& label : labels) {
    std::vector<Cell> cells{label};
    for (const std::string& value : values[label]) cells.emplace_back(value);
    results.add(std::move(cells));
  }
  std::string samples;
  for (const ReportData& run : runs)
    if (!run.samples.empty())
      samples += "<h3>" + escape_html(run.label) + "</h3>" + one_sample(run.samples.back());
  const std::string body = "<div class=scroll>" + results.html() + "</div>" + controls(rows) + kNoScript +
                           metric_plots(rows) + rl_section(rows) +
                           "<h2>Settings that differ</h2><div class=scroll>" + settings_table(runs).html() +
                           "</div>" + (samples.empty() ? "" : "<h2>Last samples</h2>" + samples);
  return render_page(fmt::format("{} runs", runs.size()), "", build_info().version, body);
}

std::string render_page(const std::string& title, const std::string& facts, const std::string& version,
                        const std::string& body) {
  return "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport "
         "content='width=device-width, initial-scale=1'><title>" +
         escape_html(title) + " · Ingot</title><style>" + kReportStyle + heat_style() +
         "</style></head><body><main>" +
         fmt::format("<header><h1>{}</h1><p>{}</p><p class=brand>Ingot {}</p></header>", escape_html(title),
                     escape_html(facts), escape_html(version)) +
         body + "</main><script>" + kReportScript + "</script></body></html>\n";
}

ReportData read_report_data(FileSystem& fs, const std::string& run_folder) {
  ReportData data;
  data.label = run_folder;
  while (data.label.size() > 1 && data.label.ends_with('/')) data.label.pop_back();
  data.record = read_run_record(fs, run_folder);
  data.rows = read_metrics(fs, run_folder + "/" + run_files::kMetrics);
  data.samples = read_samples(fs, run_folder + "/" + run_files::kSamples);
  data.reasoning = read_reason_results(fs, run_folder);
  const std::string profile = run_folder + "/" + run_files::kProfile;
  if (fs.exists(profile)) data.profile = profile_section(fs.read(profile), profile);
  return data;
}

void write_report(FileSystem& fs, const std::string& run_folder, bool running) {
  ReportData data = read_report_data(fs, run_folder);
  data.running = running;
  write_file_atomically(fs, run_folder + "/" + run_files::kReport, render_report(data));
}

LiveReport::LiveReport(FileSystem& fs, std::string run_folder)
    : fs_(fs), folder_(std::move(run_folder)), due_(monotonic_seconds() + kReportSeconds) {}

void LiveReport::update() {
  const double begun = monotonic_seconds();
  if (begun < due_) return;
  try {
    write_report(fs_, folder_, true);
  } catch (const Error& e) {  // a page is not worth a run
    log::warn("report.html is not written until the end of the run: {}", e.what());
    due_ = INFINITY;
    return;
  }
  const double now = monotonic_seconds();
  due_ = now + std::max(kReportSeconds, 100 * (now - begun));
}

}  // namespace ingot
