// See profile.h: text and JSON.
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "measure/profile.h"
#include "report/table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::map<ProfileReport::Key, ProfileCell>;

/// A row of a table: cells by pass, and their sum.
struct Row {
  std::string name;
  ProfileCell pass[kOpPasses], all;
};

/// Adds up the cells of one name to a row; cells with an empty name are skipped. Slowest first, or by name.
std::vector<Row> table_rows(const Cells& cells,
                            const std::function<std::string(const ProfileReport::Key&)>& name,
                            bool by_name = false) {
  std::map<std::string, Row> rows;
  for (const auto& [key, cell] : cells) {
    const std::string text = name(key);
    if (text.empty()) continue;
    Row& row = rows[text];
    row.name = text;
    row.pass[static_cast<size_t>(key.pass)].add(cell);
    row.all.add(cell);
  }
  std::vector<Row> sorted;
  for (auto& [text, row] : rows) sorted.push_back(std::move(row));
  if (!by_name)
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Row& a, const Row& b) { return a.all.seconds > b.all.seconds; });
  return sorted;
}

/// What the sums are divided by: parts = ranks x steps, seconds of a step, peak rates of one rank.
struct Scale {
  double parts, step_seconds, peak_flops, read_bytes;
};

Table cells_table(const char* title, const std::vector<Row>& rows, const Scale& s) {
  bool used[kOpPasses] = {};
  for (const Row& row : rows)
    for (int p = 0; p < kOpPasses; ++p) used[p] |= row.pass[p].calls > 0;
  std::vector<Column> columns{words(title), number("calls", 0), number("ms", 3, 1e3), percent("step")};
  for (int p = 0; p < kOpPasses; ++p) {
    if (!used[p]) continue;
    const std::string group = name_of(static_cast<OpPass>(p));
    columns.push_back(number("ms", 3, 1e3, group));
    for (const char* limit : {"of P", "of B"}) columns.push_back(percent(limit, group));
  }
  Table table(std::move(columns));
  const auto share = [](double amount, double seconds, double rate) {
    return amount > 0 && seconds > 0 && rate > 0 ? Cell(amount / seconds / rate) : Cell();
  };
  for (const Row& row : rows) {
    const double seconds = row.all.seconds / s.parts;
    std::vector<Cell> cells{row.name, static_cast<double>(row.all.calls) / s.parts, seconds,
                            seconds / s.step_seconds};
    for (int p = 0; p < kOpPasses; ++p) {
      if (!used[p]) continue;
      const ProfileCell& c = row.pass[p];
      if (c.calls == 0)
        cells.insert(cells.end(), 3, Cell());
      else
        cells.insert(cells.end(), {c.seconds / s.parts, share(c.flops, c.seconds, s.peak_flops),
                                   share(c.bytes, c.seconds, s.read_bytes)});
    }
    table.add(std::move(cells));
  }
  return table;
}

/// Means over ranks and steps; with several ranks also the least and the most of any rank.
Table times_table(const ProfileReport& r) {
  std::vector<Column> columns{words("time of a step"), number("ms", 3, 1e3), percent("share")};
  if (r.ranks.size() > 1)
    for (const char* end : {"least", "most"}) columns.push_back(number(end, 3, 1e3));
  Table table(std::move(columns));
  std::vector<std::array<double, kTimesOf>> times;
  for (const RankProfile& rank : r.ranks) times.push_back(r.times(rank));
  double whole = 0;
  for (const auto& t : times)
    for (const double seconds : t) whole += seconds;
  for (size_t w = 0; w < kTimesOf; ++w) {
    std::vector<double> seconds;
    double sum = 0;
    for (const auto& t : times) sum += seconds.emplace_back(t[w]);
    std::vector<Cell> cells{name_of(static_cast<TimeOf>(w)), sum / static_cast<double>(times.size()),
                            sum / whole};
    const Spread s = spread_of(std::move(seconds));
    if (times.size() > 1) cells.insert(cells.end(), {s.least, s.most});
    table.add(std::move(cells));
  }
  return table;
}

std::string segment_name(const ProfileReport::Key& k) {
  return k.segment;
}
std::string layer_name(const ProfileReport::Key& k) {
  return k.segment.empty() ? "" : k.layer < 0 ? k.segment : fmt::format("layer {:>3} {}", k.layer, k.segment);
}

double sum_of_flops(const Cells& cells) {
  double flops = 0;
  for (const auto& [key, cell] : cells) flops += cell.flops;
  return flops;
}

}  // namespace

std::string text_of_device(DeviceKind device, const std::vector<DeviceCount>& counts, double steps) {
  std::string text = fmt::format("device '{}', in a step:", name_of(device));
  for (const DeviceCount& c : counts)
    if (c.count > 0 || !c.if_any)
      text += fmt::format("{} {:g} {}", text.ends_with(':') ? "" : ",",
                          std::round(10 * static_cast<double>(c.count) / steps) / 10, c.words);
  return text + '\n';
}

std::string to_text(const ProfileReport& r, bool layers) {
  const Cells cells = r.cells();
  const Spread step = r.step_seconds();
  const auto ranks = static_cast<double>(r.ranks.size()), steps = static_cast<double>(r.steps());
  const double peak = r.peak_gflops(), read = r.read_gbs();
  double seconds = 0;
  for (const double part : r.times(r.ranks.front())) seconds += part;
  const Scale scale{ranks * steps, seconds, 1e9 * peak / ranks, 1e9 * read / ranks};
  const std::string text = fmt::format(
      "{}: phase '{}', {}, {} parameters, {}: {} x {} tokens in micro-batches of {}\n"
      "{} of {}, {} kernels; P = {:.0f} GFLOP/s of fp32, B = {:.1f} GB/s read from memory, medians around "
      "the steps\n"
      "step {:.2f} ms (fastest {:.2f}, slowest {:.2f}), median of {}: {:.0f} tokens/s, {:.1f} % of P over "
      "all the work that ops do\n",
      r.of, r.phase, r.model.empty() ? "own model" : r.model, group_digits(r.parameters), r.precision,
      r.batch, r.length, r.micro_batch, count_of(std::ssize(r.ranks), "rank"),
      count_of(r.ranks.front().threads, "thread"), r.isa, peak, read, 1e3 * step.median, 1e3 * step.least,
      1e3 * step.most, r.steps(), static_cast<double>(r.batch * r.length) / step.median,
      100 * sum_of_flops(cells) / steps / step.median / (1e9 * peak));
  const std::string device =
      r.device != DeviceKind::cpu ? text_of_device(r.device, r.device_work, steps) : "";
  std::vector<Table> tables{times_table(r),
                            cells_table("op", table_rows(cells, [](const auto& k) { return k.op; }), scale),
                            cells_table("segment", table_rows(cells, segment_name), scale)};
  if (layers) tables.push_back(cells_table("layer", table_rows(cells, layer_name, true), scale));
  return text + device + text_of(tables);
}

std::string to_json(const ProfileReport& r) {
  Json ranks = Json::array(), cells = Json::array();
  for (const RankProfile& rank : r.ranks) {
    Json times = Json::object(), steps = Json::array();
    const auto t = r.times(rank);
    for (int w = 0; w < kTimesOf; ++w) times[name_of(static_cast<TimeOf>(w))] = t[static_cast<size_t>(w)];
    for (const StepSpan& s : rank.steps) steps.push_back(s.end - s.begin);
    ranks.push_back({{"rank", rank.rank},
                     {"threads", rank.threads},
                     {"peak_gflops", spread_of(rank.peak_gflops)},
                     {"read_gigabytes_per_second", spread_of(rank.read_gbs)},
                     {"times", std::move(times)},
                     {"step_seconds", std::move(steps)}});
  }
  for (const auto& [key, c] : r.cells())
    cells.push_back({{"op", key.op},
                     {"pass", name_of(key.pass)},
                     {"segment", key.segment},
                     {"layer", key.layer},
                     {"time_of", name_of(c.what)},
                     {"calls", c.calls},
                     {"seconds", c.seconds},
                     {"flops", c.flops},
                     {"bytes", c.bytes},
                     {"wire_bytes", c.wire_bytes}});
  Json device = Json::object();
  for (const DeviceCount& c : r.device_work) device[c.name] = c.count;
  const Json all{{"format", 1},
                 {"of", r.of},
                 {"stage", r.phase},
                 {"model", r.model},
                 {"precision", r.precision},
                 {"isa", r.isa},
                 {"parameters", r.parameters},
                 {"batch", r.batch},
                 {"micro_batch", r.micro_batch},
                 {"length", r.length},
                 {"steps", r.steps()},
                 {"step_seconds", r.step_seconds()},
                 {"peak_gflops", r.peak_gflops()},
                 {"read_gigabytes_per_second", r.read_gbs()},
                 {"ranks", std::move(ranks)},
                 {"device", name_of(r.device)},
                 {"device_work", std::move(device)},
                 {"cells", std::move(cells)}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
