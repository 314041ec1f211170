// See comm_page.h.
#include "apps/comm_page.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/build_info.h"
#include "base/progress.h"
#include "report/report.h"
#include "report/svg_plot.h"

namespace ingot {
namespace {

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

std::string render_comm_page(const CommReport& report, const std::string& backend) {
  std::set<int> counts;
  for (const CommMeasurement& m : report.measurements) counts.insert(m.ranks);
  std::string body;
  for (const int ranks : counts) body += plots_of(report, ranks);
  std::vector<Bar> bars;
  for (const RankSpeed& s : report.speeds)
    bars.push_back(
        {fmt::format("rank {}", s.rank), fmt::format("{:.3g} GB/s", s.bandwidth / 1e9), s.bandwidth});
  if (!bars.empty())
    body += "<h2>Ranks</h2>" + draw_bars("Bandwidth with all partners", "slowest first", bars);
  return render_page("Communication", backend, build_info().version, body);
}

}  // namespace ingot
