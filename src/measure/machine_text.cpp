// See machine.h: the report as text, JSON and a page.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/build_info.h"
#include "base/progress.h"
#include "measure/machine.h"
#include "report/report.h"
#include "report/svg_plot.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string binary_size(int64_t bytes) {
  if (bytes % (int64_t{1} << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / 1024);
}

std::string arithmetic_text(const MachineReport& r) {
  if (r.arithmetic.empty()) return "";
  std::string text = fmt::format("\narithmetic, GFLOP/s\n{:>8} {:>12} {:>8} {:>12} {:>8}\n", "threads",
                                 "fp32 FMA", "spread", "bf16 dot", "spread");
  for (const ArithmeticRow& row : r.arithmetic)
    text += fmt::format("{:>8} {:>12.1f} {:>8} {:>12.1f} {:>8}\n", row.threads, row.fma_gflops.median,
                        width_of(row.fma_gflops), row.dot_gflops.median, width_of(row.dot_gflops));
  return text;
}

/// A row for each working set; rows stand in the order of measure_memory.
std::string memory_text(const MachineReport& r) {
  std::string text;
  int threads = 0;
  double widest = 0;
  for (size_t i = 0; i < r.memory.size(); ++i) {
    const MemoryRow& row = r.memory[i];
    if (row.threads != threads) {
      threads = row.threads;
      text += fmt::format("\nmemory, GB/s, {} thread{}\n{:>12} {:<8}", threads, threads == 1 ? "" : "s",
                          "working set", "in");
      for (const MemoryPass pass : kEveryMemoryPass) text += fmt::format("{:>10}", name_of(pass));
      text += "\n";
    }
    if (row.pass == kEveryMemoryPass[0])
      text += fmt::format("{:>12} {:<8}", binary_size(row.bytes), row.level);
    text += fmt::format("{:>10.1f}", row.rate.median / 1e9);
    if (row.pass == kEveryMemoryPass[std::size(kEveryMemoryPass) - 1]) text += "\n";
    widest = std::max(widest, (row.rate.most - row.rate.least) / row.rate.median);
  }
  return text.empty() ? "" : text + fmt::format("widest spread {:.0f} %\n", 100 * widest);
}

std::string storage_title(const StorageReport& s) {
  return fmt::format(
      "storage of '{}', a file of {}, {}", s.folder, binary_size(s.file_bytes),
      s.direct ? "past the page cache (O_DIRECT)"
               : "through the page cache: this file system refuses O_DIRECT, so reads may come from memory");
}

std::string storage_text(const MachineReport& r) {
  if (!r.storage) return "";
  std::string text =
      fmt::format("\n{}\n{:>6} {:>8} {:>10} {:>12} {:>8} {:>12} {:>12} {:>12}\n", storage_title(*r.storage),
                  "", "threads", "size", "IOPS", "spread", "bandwidth", "latency", "slowest 1 %");
  for (const StorageRow& row : r.storage->rows)
    text += fmt::format("{:>6} {:>8} {:>10} {:>12.0f} {:>8} {:>10.3f} GB/s {:>9.3f} ms {:>9.3f} ms\n",
                        row.write ? "write" : "read", row.threads, binary_size(row.bytes), row.iops.median,
                        width_of(row.iops), row.bandwidth() / 1e9, 1e3 * row.latency.median,
                        1e3 * row.slow.median);
  return text;
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
  if (r.arithmetic.empty()) return "";
  std::vector<Bar> bars;
  for (const ArithmeticRow& row : r.arithmetic) {
    const std::string name = fmt::format("{} thread{}", row.threads, row.threads == 1 ? "" : "s");
    bars.push_back({"fp32 FMA, " + name,
                    fmt::format("{:.0f} ± {}", row.fma_gflops.median, width_of(row.fma_gflops)),
                    row.fma_gflops.median});
    bars.push_back({"bf16 dot, " + name,
                    fmt::format("{:.0f} ± {}", row.dot_gflops.median, width_of(row.dot_gflops)),
                    row.dot_gflops.median});
  }
  return "<h2>Arithmetic</h2>" + draw_bars("Peak", "GFLOP/s", bars);
}

std::string memory_plots(const MachineReport& r) {
  std::set<int> counts;
  for (const MemoryRow& row : r.memory) counts.insert(row.threads);
  std::string plots, facts;
  for (const CacheLevel& c : r.caches) facts += fmt::format("{} {}, ", c.name, binary_size(c.bytes));
  for (const int threads : counts) {
    LinePlot plot;
    plot.title = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
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
    const std::string line = fmt::format("{}, {} thread{}", row.write ? "write" : "read", row.threads,
                                         row.threads == 1 ? "" : "s");
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
  if (r.caches.empty()) text += " not told";
  text += "\n" + arithmetic_text(r) + memory_text(r) + storage_text(r);
  return r.demand ? text + "\n" + to_text(*r.demand) : text;
}

std::string to_json(const MachineReport& r) {
  Json caches = Json::array(), arithmetic = Json::array(), memory = Json::array();
  for (const CacheLevel& c : r.caches)
    caches.push_back({{"name", c.name}, {"bytes", c.bytes}, {"cores", c.cores}});
  for (const ArithmeticRow& row : r.arithmetic)
    arithmetic.push_back(
        {{"threads", row.threads}, {"fma_gflops", row.fma_gflops}, {"dot_gflops", row.dot_gflops}});
  for (const MemoryRow& row : r.memory)
    memory.push_back({{"pass", name_of(row.pass)},
                      {"threads", row.threads},
                      {"bytes", row.bytes},
                      {"level", row.level},
                      {"bytes_per_second", row.rate}});
  Json all{{"format", 1},
           {"processor", r.processor},
           {"isa", r.isa},
           {"caches", std::move(caches)},
           {"arithmetic", std::move(arithmetic)},
           {"memory", std::move(memory)}};
  if (r.storage) {
    Json rows = Json::array();
    for (const StorageRow& row : r.storage->rows)
      rows.push_back({{"op", row.write ? "write" : "read"},
                      {"threads", row.threads},
                      {"bytes", row.bytes},
                      {"iops", row.iops},
                      {"bytes_per_second", row.bandwidth()},
                      {"latency_seconds", row.latency},
                      {"slowest_percent_seconds", row.slow}});
    all["storage"] = {{"folder", r.storage->folder},
                      {"direct", r.storage->direct},
                      {"file_bytes", r.storage->file_bytes},
                      {"rows", std::move(rows)}};
  }
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
