// See comm_report.h.
#include "measure/comm_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/build_info.h"
#include "base/progress.h"
#include "report/plot.h"
#include "report/report.h"
#include "report/table.h"

namespace ingot {
namespace {

std::set<int> rank_counts(const CommReport& report) {
  std::set<int> counts;
  for (const CommMeasurement& m : report.measurements) counts.insert(m.ranks);
  return counts;
}

/// One table for each collective and number of ranks, in the order of the measurements. A bar shows the
/// bandwidth.
std::vector<Table> collective_tables(const CommReport& report) {
  double best = 0;
  for (const CommMeasurement& m : report.measurements) best = std::max(best, m.bus_bandwidth);
  std::vector<Table> tables;
  const CommMeasurement* before = nullptr;
  for (const CommMeasurement& m : report.measurements) {
    if (before == nullptr || before->ranks != m.ranks || before->kind != m.kind)
      tables.emplace_back(
          std::vector<Column>{{.title = "bytes"},
                              {.title = "time", .format = "{:.1f} us", .scale = 1e6},
                              {.title = "bus bandwidth", .format = "{:.3f} GB/s", .scale = 1e-9},
                              words("")},
          fmt::format("{} among {} ranks", name_of(m.kind), m.ranks));
    before = &m;
    const std::string bar(static_cast<size_t>(best > 0 ? 30 * m.bus_bandwidth / best : 0), '#');
    tables.back().add({m.bytes, m.seconds, m.bus_bandwidth, bar});
  }
  return tables;
}

Table speed_table(const CommReport& report) {
  Table table(
      {{.title = "rank", .field = "rank"},
       {.title = "with its partners", .format = "{:.3f} GB/s", .scale = 1e-9, .field = "bytes_per_second"}},
      "slowest first:");
  for (const RankSpeed& s : report.speeds) table.add({s.rank, s.bandwidth});
  return table;
}

/// A line for each collective among so many ranks, over sizes.
LinePlot plot_by_size(const CommReport& report, int ranks, double (*value)(const CommMeasurement&)) {
  LinePlot plot;
  plot.bytes_x = true;
  for (const CommMeasurement& m : report.measurements) {
    if (m.ranks != ranks || m.bytes == 0) continue;
    add_point(plot, name_of(m.kind), std::log2(static_cast<double>(m.bytes)), value(m));
  }
  return plot;
}

std::string plots_of(const CommReport& report, int ranks) {
  LinePlot bandwidth =
      plot_by_size(report, ranks, [](const CommMeasurement& m) { return m.bus_bandwidth / 1e9; });
  bandwidth.title = fmt::format("Bus bandwidth among {} ranks", ranks);
  bandwidth.subtitle = "GB/s by size of the tensor";
  bandwidth.from_zero = true;
  LinePlot time = plot_by_size(report, ranks, [](const CommMeasurement& m) { return m.seconds * 1e6; });
  time.title = fmt::format("Time among {} ranks", ranks);
  time.subtitle = "microseconds by size of the tensor";
  time.log_y = true;
  std::string facts;
  if (const int64_t bucket = suggested_bucket(report, ranks); bucket > 0)
    facts = fmt::format("Gradient buckets of {} reach 90 % of the best bandwidth. ",
                        format_bytes(static_cast<double>(bucket)));
  for (const CommMeasurement& m : report.measurements)
    if (m.ranks == ranks && m.kind == CommKind::barrier)
      facts += fmt::format("A barrier takes {}.", format_seconds(m.seconds));
  return fmt::format("<h2>{} ranks</h2><p>{}</p><div class=columns>{}{}</div>", ranks, facts, draw(bandwidth),
                     draw(time));
}

}  // namespace

std::string to_text(const CommReport& report, const std::string& backend) {
  std::string text = backend + "\n" + text_of(collective_tables(report)) + "\n";
  for (const int n : rank_counts(report))
    text += fmt::format("gradient buckets among {} ranks: {} reaches 90 % of the best bandwidth\n", n,
                        format_bytes(static_cast<double>(suggested_bucket(report, n))));
  return text + text_of({speed_table(report)});
}

std::string to_json(const CommReport& report, const std::string& backend) {
  Table collectives({{.field = "collective"},
                     {.field = "ranks"},
                     {.field = "bytes"},
                     {.field = "seconds"},
                     {.field = "bus_bytes_per_second"}});
  for (const CommMeasurement& m : report.measurements)
    collectives.add({name_of(m.kind), m.ranks, m.bytes, m.seconds, m.bus_bandwidth});
  Table buckets({{.field = "ranks"}, {.field = "bytes"}});
  for (const int n : rank_counts(report)) buckets.add({n, suggested_bucket(report, n)});
  const nlohmann::ordered_json all{{"format", 1},
                                   {"backend", backend},
                                   {"collectives", collectives.json()},
                                   {"buckets", buckets.json()},
                                   {"speeds", speed_table(report).json()}};
  return all.dump(1) + "\n";
}

std::string render_comm_page(const CommReport& report, const std::string& backend) {
  std::string body;
  for (const int ranks : rank_counts(report)) body += plots_of(report, ranks);
  std::vector<Bar> bars;
  for (const RankSpeed& s : report.speeds)
    bars.push_back(
        {fmt::format("rank {}", s.rank), fmt::format("{:.3g} GB/s", s.bandwidth / 1e9), s.bandwidth});
  if (!bars.empty())
    body += "<h2>Ranks</h2>" + draw_bars("Bandwidth with all partners", "slowest first", bars);
  return render_page("Communication", backend, build_info().version, body);
}

}  // namespace ingot
