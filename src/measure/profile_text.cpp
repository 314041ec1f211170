// See profile.h: tables for people and JSON.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "measure/profile.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::map<ProfileReport::Key, ProfileCell>;

/// Cells of one table's row by pass.
struct Row {
  std::string name;
  ProfileCell pass[kOpPasses], all;
};

/// Cells of one name are one row; an empty name: in no row. Slowest first, or by name.
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

/// A table's units: what one rank does in one step, and what one rank can.
struct Scale {
  double parts, step_seconds, peak_flops, read_bytes;
};

std::string cell_text(const ProfileCell& c, const Scale& s) {
  if (c.calls == 0) return fmt::format(" |{:>9} {:>6} {:>6}", "", "", "");
  const auto share = [&](double amount, double rate) {
    return amount > 0 && c.seconds > 0 && rate > 0 ? fmt::format("{:.1f}%", 100 * amount / c.seconds / rate)
                                                   : std::string();
  };
  return fmt::format(" |{:>9.3f} {:>6} {:>6}", 1e3 * c.seconds / s.parts, share(c.flops, s.peak_flops),
                     share(c.bytes, s.read_bytes));
}

std::string table(const char* title, const std::vector<Row>& rows, const Scale& s) {
  bool used[kOpPasses] = {};
  size_t width = std::string(title).size();
  for (const Row& row : rows) {
    width = std::max(width, row.name.size());
    for (int p = 0; p < kOpPasses; ++p) used[p] |= row.pass[p].calls > 0;
  }
  std::string text = fmt::format("\n{:<{}} {:>7} {:>9} {:>6}", title, width, "calls", "ms", "step");
  for (int p = 0; p < kOpPasses; ++p)
    if (used[p]) text += fmt::format(" |{:>23}", name_of(static_cast<OpPass>(p)));
  text += fmt::format("\n{:<{}} {:>7} {:>9} {:>6}", "", width, "", "", "");
  for (int p = 0; p < kOpPasses; ++p)
    if (used[p]) text += fmt::format(" |{:>9} {:>6} {:>6}", "ms", "of P", "of B");
  text += "\n";
  for (const Row& row : rows) {
    text += fmt::format("{:<{}} {:>7.0f} {:>9.3f} {:>5.1f}%", row.name, width,
                        static_cast<double>(row.all.calls) / s.parts, 1e3 * row.all.seconds / s.parts,
                        100 * row.all.seconds / s.parts / s.step_seconds);
    for (int p = 0; p < kOpPasses; ++p)
      if (used[p]) text += cell_text(row.pass[p], s);
    text += "\n";
  }
  return text;
}

/// Means over ranks and steps.
std::string times_text(const ProfileReport& r) {
  const bool several = r.ranks.size() > 1;
  std::string text = fmt::format("\n{:<15} {:>9} {:>7}", "time of a step", "ms", "share");
  if (several) text += fmt::format(" {:>9} {:>9}", "least", "most");
  text += "\n";
  double whole = 0;
  for (int w = 0; w < kTimesOf; ++w)
    for (const RankProfile& rank : r.ranks) whole += r.times(rank)[static_cast<size_t>(w)];
  for (int w = 0; w < kTimesOf; ++w) {
    std::vector<double> seconds;
    double sum = 0;
    for (const RankProfile& rank : r.ranks)
      sum += seconds.emplace_back(r.times(rank)[static_cast<size_t>(w)]);
    const double mean = sum / static_cast<double>(r.ranks.size());
    text += fmt::format("{:<15} {:>9.3f} {:>6.1f}%", name_of(static_cast<TimeOf>(w)), 1e3 * mean,
                        100 * sum / whole);
    const Spread s = spread_of(seconds);
    if (several) text += fmt::format(" {:>9.3f} {:>9.3f}", 1e3 * s.least, 1e3 * s.most);
    text += "\n";
  }
  return text;
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

std::string to_text(const ProfileReport& r, bool layers) {
  const Cells cells = r.cells();
  const Spread step = r.step_seconds();
  const auto ranks = static_cast<double>(r.ranks.size()), steps = static_cast<double>(r.steps());
  const double peak = r.peak_gflops(), read = r.read_gbs();
  double seconds = 0;
  for (const double part : r.times(r.ranks.front())) seconds += part;
  const Scale scale{ranks * steps, seconds, 1e9 * peak / ranks, 1e9 * read / ranks};
  const int threads = r.ranks.front().threads;
  std::string text = fmt::format(
      "{}: phase '{}', {}, {} parameters, {}: {} x {} tokens in micro-batches of {}\n"
      "{} rank{} of {} thread{}, {} kernels; P = {:.0f} GFLOP/s of fp32, B = {:.1f} GB/s read from memory, "
      "medians around the steps\n"
      "step {:.2f} ms (fastest {:.2f}, slowest {:.2f}), median of {}: {:.0f} tokens/s, {:.1f} % of P over "
      "all the work that ops do\n",
      r.of, r.phase, r.model.empty() ? "own model" : r.model, group_digits(r.parameters), r.precision,
      r.batch, r.length, r.micro_batch, r.ranks.size(), r.ranks.size() == 1 ? "" : "s", threads,
      threads == 1 ? "" : "s", r.isa, peak, read, 1e3 * step.median, 1e3 * step.least, 1e3 * step.most,
      r.steps(), static_cast<double>(r.batch * r.length) / step.median,
      100 * sum_of_flops(cells) / steps / step.median / (1e9 * peak));
  text += times_text(r);
  text += table("op", table_rows(cells, [](const auto& k) { return k.op; }), scale);
  text += table("segment", table_rows(cells, segment_name), scale);
  if (layers) text += table("layer", table_rows(cells, layer_name, true), scale);
  return text;
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
                 {"cells", std::move(cells)}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
