// See machine.h: the report as text, JSON and a page.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/build_info.h"
#include "base/progress.h"
#include "measure/machine.h"
#include "report/plot.h"
#include "report/report.h"
#include "report/table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string binary_size(int64_t bytes) {
  if (bytes % (int64_t{1} << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / 1024);
}

Table arithmetic_table(const MachineReport& r) {
  Table table({{.title = "threads", .field = "threads"},
               {.title = "fp32 FMA", .format = "{:.1f}", .spread = true, .field = "fma_gflops"},
               {.title = "bf16 dot", .format = "{:.1f}", .spread = true, .field = "dot_gflops"}},
              "arithmetic, GFLOP/s");
  for (const ArithmeticRow& row : r.arithmetic) table.add({row.threads, row.fma_gflops, row.dot_gflops});
  return table;
}

/// A table for each number of threads, with a row for each working set; rows stand in the order of
/// measure_memory.
std::vector<Table> memory_tables(const MachineReport& r) {
  std::vector<Column> columns{{.title = "working set"}, words("in")};
  for (const MemoryPass pass : kEveryMemoryPass) columns.push_back(number(name_of(pass), 1, 1e-9));
  columns.push_back({.title = "widest spread", .format = "{:.0f} %", .scale = 100});
  constexpr size_t kPasses = std::size(kEveryMemoryPass);
  std::vector<Table> tables;
  for (size_t i = 0; i + kPasses <= r.memory.size(); i += kPasses) {
    const MemoryRow& first = r.memory[i];
    if (i == 0 || r.memory[i - 1].threads != first.threads)
      tables.emplace_back(columns, "memory, GB/s, " + count_of(first.threads, "thread"));
    std::vector<Cell> cells{binary_size(first.bytes), first.level};
    double widest = 0;
    for (size_t p = i; p < i + kPasses; ++p) {
      cells.push_back(r.memory[p].rate);
      widest = std::max(widest, r.memory[p].rate.width());
    }
    cells.push_back(widest);
    tables.back().add(std::move(cells));
  }
  return tables;
}

std::string storage_title(const StorageReport& s) {
  return fmt::format(
      "storage of '{}', a file of {}, {}", s.folder, binary_size(s.file_bytes),
      s.direct ? "past the page cache (O_DIRECT)"
               : "through the page cache: this file system refuses O_DIRECT, so reads may come from memory");
}

Table storage_table(const StorageReport& s) {
  Table table(
      {words("op", "op"),
       {.title = "threads", .field = "threads"},
       {.title = "size"},
       {.field = "bytes"},
       {.title = "IOPS", .format = "{:.0f}", .spread = true, .field = "iops"},
       {.title = "bandwidth", .format = "{:.3f} GB/s", .scale = 1e-9, .field = "bytes_per_second"},
       {.title = "latency", .format = "{:.3f} ms", .scale = 1e3, .field = "latency_seconds"},
       {.title = "slowest 1 %", .format = "{:.3f} ms", .scale = 1e3, .field = "slowest_percent_seconds"}},
      storage_title(s));
  for (const StorageRow& row : s.rows)
    table.add({row.write ? "write" : "read", row.threads, binary_size(row.bytes), row.bytes, row.iops,
               row.bandwidth(), row.latency, row.slow});
  return table;
}

Json json_of(const LoaderDemand& d) {
  return {{"of", d.of},
          {"batch", d.batch},
          {"sequence", d.sequence},
          {"token_bytes", d.token_bytes},
          {"page", d.page},
          {"samples", d.samples},
          {"extra_pages", d.extra_pages},
          {"scatter", d.scatter()},
          {"transfers", d.transfers()},
          {"step_seconds", d.step_seconds},
          {"needed_iops", d.needed_iops()},
          {"most_iops", d.most_iops},
          {"break_even_seconds", d.break_even_seconds()}};
}

std::string arithmetic_plot(const MachineReport& r) {
  std::vector<Bar> bars;
  for (const ArithmeticRow& row : r.arithmetic)
    for (const auto& [kind, gflops] : {std::pair("fp32 FMA", row.fma_gflops), {"bf16 dot", row.dot_gflops}})
      bars.push_back({fmt::format("{}, {}", kind, count_of(row.threads, "thread")),
                      fmt::format("{:.0f} ± {}", gflops.median, width_of(gflops)), gflops.median});
  return bars.empty() ? "" : "<h2>Arithmetic</h2>" + draw_bars("Peak", "GFLOP/s", bars);
}

std::string memory_plots(const MachineReport& r) {
  std::set<int> counts;
  for (const MemoryRow& row : r.memory) counts.insert(row.threads);
  std::string plots, facts;
  for (const CacheLevel& c : r.caches) facts += fmt::format("{} {}, ", c.name, binary_size(c.bytes));
  for (const int threads : counts) {
    LinePlot plot;
    plot.title = count_of(threads, "thread");
    plot.subtitle = "GB/s by working set of a thread";
    plot.bytes_x = plot.from_zero = true;
    for (const MemoryRow& row : r.memory)
      if (row.threads == threads)
        add_point(plot, name_of(row.pass), std::log2(static_cast<double>(row.bytes)), row.rate.median / 1e9);
    plots += draw(plot);
  }
  return plots.empty()
             ? ""
             : fmt::format("<h2>Memory</h2><p>Caches: {}then memory.</p><div class=columns>{}</div>",
                           escape_html(facts), plots);
}

std::string storage_plots(const MachineReport& r) {
  if (!r.storage) return "";
  LinePlot iops, bandwidth, latency;
  iops.title = "Transfers", iops.subtitle = "per second, by size", iops.log_y = true;
  bandwidth.title = "Bandwidth", bandwidth.subtitle = "GB/s, by size of a transfer",
  bandwidth.from_zero = true;
  latency.title = "Latency", latency.subtitle = "median ms, by size of a transfer", latency.log_y = true;
  for (LinePlot* plot : {&iops, &bandwidth, &latency}) plot->bytes_x = true;
  for (const StorageRow& row : r.storage->rows) {
    const std::string line =
        fmt::format("{}, {}", row.write ? "write" : "read", count_of(row.threads, "thread"));
    const double x = std::log2(static_cast<double>(row.bytes));
    add_point(iops, line, x, row.iops.median);
    add_point(bandwidth, line, x, row.bandwidth() / 1e9);
    add_point(latency, line, x, 1e3 * row.latency.median);
  }
  return fmt::format("<h2>Storage</h2><p>{}</p><div class=columns>{}{}{}</div>",
                     escape_html(storage_title(*r.storage)), draw(iops), draw(bandwidth), draw(latency));
}

}  // namespace

std::string to_text(const MachineReport& r) {
  std::string text = fmt::format("{}, {} kernels; caches:", r.processor, r.isa);
  for (const CacheLevel& c : r.caches)
    text += fmt::format(" {} {} for {}", c.name, binary_size(c.bytes), c.cores);
  if (r.caches.empty()) text += " unknown";
  text += "\n" + text_of({arithmetic_table(r)}) + text_of(memory_tables(r));
  if (r.storage) text += text_of({storage_table(*r.storage)});
  return r.demand ? text + "\n" + to_text(*r.demand) : text;
}

std::string to_json(const MachineReport& r) {
  Table caches({{.field = "name"}, {.field = "bytes"}, {.field = "cores"}});
  for (const CacheLevel& c : r.caches) caches.add({c.name, c.bytes, c.cores});
  Table memory({{.field = "pass"},
                {.field = "threads"},
                {.field = "bytes"},
                {.field = "level"},
                {.field = "bytes_per_second"}});
  for (const MemoryRow& row : r.memory)
    memory.add({name_of(row.pass), row.threads, row.bytes, row.level, row.rate});
  Json all{{"format", 1},
           {"processor", r.processor},
           {"isa", r.isa},
           {"caches", caches.json()},
           {"arithmetic", arithmetic_table(r).json()},
           {"memory", memory.json()}};
  if (r.storage)
    all["storage"] = {{"folder", r.storage->folder},
                      {"direct", r.storage->direct},
                      {"file_bytes", r.storage->file_bytes},
                      {"rows", storage_table(*r.storage).json()}};
  if (r.demand) all["loader"] = json_of(*r.demand);
  return all.dump(1) + "\n";
}

std::string render_machine_page(const MachineReport& r) {
  std::string body = arithmetic_plot(r) + memory_plots(r) + storage_plots(r);
  if (r.demand)
    body +=
        "<h2>Reading samples</h2><div class=card><pre>" + escape_html(to_text(*r.demand)) + "</pre></div>";
  return render_page("Machine", fmt::format("{}, {} kernels", r.processor, r.isa), build_info().version,
                     body);
}

}  // namespace ingot
