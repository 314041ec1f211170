// See comm_report.h.
#include "measure/comm_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/build_info.h"
#include "base/progress.h"
#include "base/spread.h"
#include "report/plot.h"
#include "report/report.h"
#include "report/table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

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

/// Times of messages by size: of each the median over pairs, with their spread.
Table message_table(const CommReport& report) {
  Table table({{.title = "bytes"},
               {.title = "time", .format = "{:.1f} us", .scale = 1e6, .spread = true},
               {.title = "bandwidth", .format = "{:.3f} GB/s", .scale = 1e-9}},
              fmt::format("messages from one rank to another, median and spread of {}",
                          count_of(static_cast<int64_t>(report.pairs.size()), "pair")));
  for (size_t i = 0; !report.pairs.empty() && i < report.pairs[0].times.size(); ++i) {
    const Spread seconds =
        spread_over(report.pairs, [&](const PairMessages& p) { return p.times[i].seconds; });
    const int64_t bytes = report.pairs[0].times[i].bytes;
    table.add({bytes, seconds, bytes > 0 ? Cell(static_cast<double>(bytes) / seconds.median) : Cell()});
  }
  return table;
}

/// A row for each sender, a column for each receiver.
Table pair_matrix(const CommReport& report, const std::string& title, int digits, double scale,
                  double (*value)(const PairMessages&)) {
  const int ranks = report.pairs.back().from + 1;
  std::vector<Column> columns{words("from \\ to")};
  for (int to = 0; to < ranks; ++to) columns.push_back(number(std::to_string(to), digits, scale));
  Table table(std::move(columns), title);
  for (int from = 0; from < ranks; ++from) {
    std::vector<Cell> row(static_cast<size_t>(ranks) + 1);
    row[0] = std::to_string(from);
    for (const PairMessages& p : report.pairs)
      if (p.from == from) row[static_cast<size_t>(p.to) + 1] = value(p);
    table.add(std::move(row));
  }
  return table;
}

std::vector<Table> pair_matrices(const CommReport& report) {
  if (report.pairs.empty()) return {};
  const std::string largest = format_bytes(static_cast<double>(report.pairs[0].times.back().bytes));
  return {pair_matrix(report, "latency of an empty message, us", 1, 1e6,
                      [](const PairMessages& p) { return p.latency_seconds(); }),
          pair_matrix(report, fmt::format("bandwidth of a message of {}, GB/s", largest), 3, 1e-9,
                      [](const PairMessages& p) { return p.bandwidth(); })};
}

std::vector<MessageFit> fits_of(const CommReport& report) {
  std::vector<MessageFit> fits;
  for (const PairMessages& p : report.pairs) fits.push_back(fit_messages(p.times));
  return fits;
}

/// The alpha-beta model of all pairs in a sentence.
std::string fit_text(const CommReport& report) {
  if (report.pairs.empty()) return "";
  const std::vector<MessageFit> fits = fits_of(report);
  const auto median = [&](auto&& value) { return spread_over(fits, value).median; };
  return fmt::format(
      "time = alpha + bytes / beta, fitted to each pair, medians: alpha {:.2f} us, beta {:.2f} GB/s, "
      "residual "
      "{:.1f} %\n",
      1e6 * median([](const MessageFit& f) { return f.fit.latency_seconds; }),
      1e-9 / median([](const MessageFit& f) { return f.fit.seconds_per_byte; }),
      100 * median([](const MessageFit& f) { return f.fit.residual; }));
}

/// The pairs that fit worst, at most a dozen.
Table fit_table(const CommReport& report) {
  constexpr size_t kMost = 12;
  const std::vector<MessageFit> fits = fits_of(report);
  std::vector<size_t> order(fits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (order.size() > kMost)
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return fits[a].fit.residual > fits[b].fit.residual; });
  Table table({{.title = "from"},
               {.title = "to"},
               number("alpha, us", 2, 1e6),
               number("beta, GB/s", 2, 1e-9),
               percent("residual"),
               percent("at most"),
               words("sizes")},
              order.size() > kMost ? fmt::format("the {} pairs with the largest residuals", kMost) : "");
  for (size_t i = 0; i < std::min(kMost, order.size()); ++i) {
    const PairMessages& p = report.pairs[order[i]];
    const MessageFit& f = fits[order[i]];
    table.add({p.from, p.to, f.fit.latency_seconds, 1 / f.fit.seconds_per_byte, f.fit.residual, f.fit.most,
               fmt::format("{} to {}", format_bytes(static_cast<double>(f.smallest)),
                           format_bytes(static_cast<double>(f.largest)))});
  }
  return table;
}

Json messages_json(const CommReport& report) {
  Json all = Json::array();
  for (const PairMessages& p : report.pairs)
    for (const MessageTime& t : p.times)
      all.push_back({{"from", p.from}, {"to", p.to}, {"bytes", t.bytes}, {"seconds", t.seconds}});
  return all;
}

Json pairs_json(const CommReport& report) {
  Json all = Json::array();
  for (const PairMessages& p : report.pairs) {
    const MessageFit f = fit_messages(p.times);
    all.push_back({{"from", p.from},
                   {"to", p.to},
                   {"latency_seconds", p.latency_seconds()},
                   {"bytes_per_second", p.bandwidth()},
                   {"alpha_seconds", f.fit.latency_seconds},
                   {"beta_bytes_per_second", 1 / f.fit.seconds_per_byte},
                   {"residual", f.fit.residual},
                   {"largest_residual", f.fit.most},
                   {"from_bytes", f.smallest},
                   {"to_bytes", f.largest}});
  }
  return all;
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

/// Measured times of messages and those of the fit, of the first pair.
std::string message_plot(const CommReport& report) {
  const PairMessages& pair = report.pairs.front();
  const TimeFit fit = fit_messages(pair.times).fit;
  LinePlot plot;
  plot.bytes_x = plot.log_y = true;
  plot.title = fmt::format("Time of a message from rank {} to {}", pair.from, pair.to);
  plot.subtitle = "microseconds by size";
  for (const MessageTime& t : pair.times) {
    if (t.bytes == 0) continue;
    const auto bytes = static_cast<double>(t.bytes);
    add_point(plot, "measured", std::log2(bytes), 1e6 * t.seconds);
    add_point(plot, "alpha + bytes / beta", std::log2(bytes), 1e6 * fit.seconds(1, bytes));
  }
  return draw(plot);
}

}  // namespace

std::string to_text(const CommReport& report, const std::string& backend) {
  std::string text = backend + "\n" + text_of(collective_tables(report)) + "\n";
  for (const int n : rank_counts(report))
    text += fmt::format("gradient buckets among {} ranks: {} reaches 90 % of the best bandwidth\n", n,
                        format_bytes(static_cast<double>(suggested_bucket(report, n))));
  std::vector<Table> messages = pair_matrices(report);
  messages.insert(messages.begin(), message_table(report));
  return text + text_of(messages) + "\n" + fit_text(report) +
         text_of({fit_table(report), speed_table(report)});
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
  const Json all{{"format", 1},
                 {"backend", backend},
                 {"collectives", collectives.json()},
                 {"buckets", buckets.json()},
                 {"messages", messages_json(report)},
                 {"pairs", pairs_json(report)},
                 {"speeds", speed_table(report).json()}};
  return all.dump(1) + "\n";
}

std::string render_comm_page(const CommReport& report, const std::string& backend) {
  std::string body;
  for (const int ranks : rank_counts(report)) body += plots_of(report, ranks);
  if (!report.pairs.empty()) {
    std::vector<Table> tables = pair_matrices(report);
    tables.insert(tables.begin(), {message_table(report), fit_table(report)});
    body += "<h2>Messages</h2><p>" + escape_html(fit_text(report)) + "</p>" + message_plot(report) +
            html_of(tables);
  }
  std::vector<Bar> bars;
  for (const RankSpeed& s : report.speeds)
    bars.push_back(
        {fmt::format("rank {}", s.rank), fmt::format("{:.3g} GB/s", s.bandwidth / 1e9), s.bandwidth});
  if (!bars.empty())
    body += "<h2>Ranks</h2>" + draw_bars("Bandwidth with all partners", "slowest first", bars);
  return render_page("Communication", backend, build_info().version, body);
}

}  // namespace ingot
