// See report.h.
#include "report/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/progress.h"
#include "base/spread.h"
#include "report/profile_plots.h"
#include "report/report_assets.h"
#include "report/svg_plot.h"
#include "report/table.h"

namespace ingot {
namespace {

using Rows = std::vector<MetricRow>;

// A plot over all steps of the run.
LinePlot plot_over(const Rows& rows, const std::string& title, const std::string& subtitle) {
  LinePlot plot;
  plot.title = title;
  plot.subtitle = subtitle;
  plot.x_begin = static_cast<double>(rows.front().step);
  plot.x_end = static_cast<double>(rows.back().step);
  return plot;
}

PlotSeries series_of(const Rows& rows, const std::string& metric, const std::string& name, int color = 0) {
  PlotSeries series;
  series.name = name;
  series.color = color;
  for (const MetricRow& row : rows)
    if (const double* value = row.scalar(metric)) {
      series.x.push_back(static_cast<double>(row.step));
      series.y.push_back(*value);
    }
  return series;
}

// The distinct middles of metric names `prefix`<middle>`suffix`, in order of appearance.
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

std::string tile(const std::string& value, const std::string& unit, const std::string& label) {
  return fmt::format("<div class=tile><b>{}{}</b><span>{}</span></div>", escape_html(value),
                     unit.empty() ? "" : "<small>" + escape_html(unit) + "</small>", escape_html(label));
}

std::string tiles(const ReportData& data) {
  const Rows& rows = data.rows;
  std::string out = "<div class=tiles>";
  if (const auto loss = series_of(rows, "loss", ""); !loss.y.empty())
    out +=
        tile(fmt::format("{:.3f}", mean_of_last(loss.y, 20)), "", "training loss, mean of the last 20 steps");
  double best = std::nan(""), at = 0;
  for (const auto& source : middles(rows, "val/", "/bits_per_byte", false)) {
    const auto bits = series_of(rows, "val/" + source + "/bits_per_byte", "");
    for (size_t i = 0; i < bits.y.size(); ++i)
      if (!(bits.y[i] >= best)) best = bits.y[i], at = bits.x[i];
  }
  if (std::isfinite(best))
    out += tile(fmt::format("{:.3f}", best), "", "bits per byte, best validation, step " + short_number(at));
  if (const auto tokens = series_of(rows, "tokens", ""); !tokens.y.empty())
    out += tile(format_count(tokens.y.back()), "", "training tokens");
  if (const auto speed = series_of(rows, "tokens_per_second", ""); !speed.y.empty())
    out += tile(format_count(median_of(speed.y)), "", "tokens per second, median");
  if (const auto roofline = series_of(rows, "percent_of_roofline", ""); !roofline.y.empty())
    out += tile(fmt::format("{:.0f}", median_of(roofline.y)), "%", "of roofline");
  if (const auto* active = data.record.find("model", "active_parameters"))
    if (const auto* total = data.record.find("model", "parameters"))
      if (std::holds_alternative<int64_t>(*active) && std::holds_alternative<int64_t>(*total))
        out +=
            tile(format_count(static_cast<double>(std::get<int64_t>(*total))), "",
                 "parameters, " + format_count(static_cast<double>(std::get<int64_t>(*active))) + " active");
  if (const auto time = series_of(rows, "step_seconds", ""); !time.y.empty()) {
    double sum = 0;
    for (const double value : time.y) sum += std::isfinite(value) ? value : 0;
    out += tile(format_seconds(sum), "", "training time");
  }
  return out + "</div>";
}

std::string loss_plots(const Rows& rows) {
  LinePlot plot = plot_over(rows, "Loss", "nats per token");
  plot.width = 1120;
  plot.height = 320;
  PlotSeries train = series_of(rows, "loss", "training");
  train.smooth = true;
  if (!train.x.empty()) plot.series.push_back(train);
  const auto sources = middles(rows, "val/", "/loss", false);
  for (size_t i = 0; i < sources.size(); ++i) {
    PlotSeries series = series_of(rows, "val/" + sources[i] + "/loss", "validation: " + sources[i],
                                  static_cast<int>(1 + i % 7));
    series.markers = true;
    plot.series.push_back(std::move(series));
  }
  return plot.series.empty() ? "" : draw(plot);
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

std::string small_plots(const Rows& rows) {
  std::string out;
  const auto sources = middles(rows, "val/", "/bits_per_byte", false);
  if (!sources.empty()) {
    LinePlot plot = plot_over(rows, "Validation", "bits per byte");
    for (size_t i = 0; i < sources.size(); ++i) {
      plot.series.push_back(
          series_of(rows, "val/" + sources[i] + "/bits_per_byte", sources[i], static_cast<int>(1 + i % 7)));
      plot.series.back().markers = true;
    }
    out += draw(plot);
  }
  const auto one = [&](const char* metric, const char* title, const char* subtitle, bool smooth, int color) {
    LinePlot plot = plot_over(rows, title, subtitle);
    plot.from_zero = true;
    plot.percent = std::string_view(metric).starts_with("percent");
    plot.series.push_back(series_of(rows, metric, title, color));
    plot.series.back().smooth = smooth;
    if (!plot.series.back().x.empty()) out += draw(plot);
  };
  one("lr", "Learning rate", "", false, 0);
  one("grad_norm", "Gradient norm", "before clipping", true, 0);
  one("tokens_per_second", "Speed", "tokens per second", true, 2);
  one("percent_of_roofline", "Percent of roofline", "shortest possible step time / measured", true, 2);
  out += time_bars(rows);
  return out.empty() ? "" : "<div class=grid2>" + out + "</div>";
}

std::string entropy_plot(const Rows& rows, const std::vector<std::string>& layers) {
  PlotSeries mean, lowest;
  mean.name = "mean of the layers";
  lowest.name = "lowest layer";
  lowest.color = 1;
  for (const MetricRow& row : rows) {
    double sum = 0, least = 2;
    int count = 0;
    for (const auto& layer : layers)
      if (const double* value = row.scalar("router/" + layer + "/entropy"))
        sum += *value, least = std::min(least, *value), ++count;
    if (count == 0) continue;
    mean.x.push_back(static_cast<double>(row.step));
    lowest.x.push_back(static_cast<double>(row.step));
    mean.y.push_back(sum / count);
    lowest.y.push_back(least);
  }
  if (mean.x.empty()) return "";
  LinePlot plot = plot_over(rows, "Balance of the experts", "normalised load entropy, 1 is perfect balance");
  plot.width = 1120;
  plot.height = 220;
  plot.series.push_back(std::move(mean));
  if (layers.size() > 1) plot.series.push_back(std::move(lowest));
  return draw(plot);
}

std::string router_section(const Rows& rows) {
  const auto entropy_layers = middles(rows, "router/", "/entropy", false);
  const auto load_layers = middles(rows, "router/", "/load", true);
  if (entropy_layers.empty() && load_layers.empty()) return "";
  std::string out = "<h2>Experts</h2><div class=stack>" + entropy_plot(rows, entropy_layers);
  if (!load_layers.empty()) {
    out +=
        "<div class=card><figcaption><b>Load of each expert</b><span>rows are experts, columns are steps"
        "</span></figcaption><div class=maps>";
    for (const auto& layer : load_layers) {
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
    out += "</div><div class=scale>unused<i></i>twice its share or more</div></div>";
  }
  return out + "</div>";
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

// Colours of the 17 levels of a heat map (svg_plot.cpp): below, neutral, above.
std::string heat_style() {
  std::string out;
  for (int level = 0; level <= 16; ++level)
    out += fmt::format(".h{}{{fill:color-mix(in oklab, var(--{}) {}%, var(--neutral))}}", level,
                       level < 8 ? "below" : "above", std::abs(level - 8) * 100 / 8);
  return out + ".h107{fill:none}";
}

}  // namespace

std::string render_report(const ReportData& data) {
  const auto text_of = [&](const char* group, const char* name) {
    const auto* value = data.record.find(group, name);
    return value != nullptr ? value_text(*value) : std::string();
  };
  const std::string name = text_of("run", "name");
  std::string facts = text_of("run", "started");
  if (!data.rows.empty()) facts += fmt::format(" · {} steps", group_digits(data.rows.back().step));
  if (const std::string status = text_of("run", "status"); !status.empty()) facts += " · " + status;
  std::string body;
  if (!data.rows.empty())
    body += tiles(data) + loss_plots(data.rows) + small_plots(data.rows) + router_section(data.rows);
  body += data.profile + sample_section(data.samples);
  body += record_tables(data) + config_section(data.record.config_toml());
  return render_page(name, facts, text_of("build", "ingot"), body);
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

void write_report(FileSystem& fs, const std::string& run_folder) {
  ReportData data;
  data.record = read_run_record(fs, run_folder);
  data.rows = read_metrics(fs, run_folder + "/" + run_files::kMetrics);
  data.samples = read_samples(fs, run_folder + "/" + run_files::kSamples);
  const std::string profile = run_folder + "/" + run_files::kProfile;
  if (fs.exists(profile)) data.profile = profile_section(fs.read(profile), profile);
  write_file_atomically(fs, run_folder + "/" + run_files::kReport, render_report(data));
}

}  // namespace ingot
