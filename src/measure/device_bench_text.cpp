// The report of device_bench.h: tables and JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "measure/device_bench.h"
#include "report/table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

Cell positive_cell(double x) {
  return x > 0 ? Cell(x) : Cell();
}

Cell share_cell(const DeviceRow& row, const char* limit) {
  return row.limit == limit ? Cell(row.limit_share.median) : Cell();
}

Table table_of(const DeviceBenchReport& r, DevicePart part) {
  Table table({words(name_of(part)),
               words("pass"),
               {.title = "ms", .format = "{:.3f}", .scale = 1e3, .spread = true},
               number("TFLOP/s", 1, 1e-12),
               number("GB/s", 1, 1e-9),
               percent("of P"),
               percent("of B"),
               {.title = "of peer", .format = "{:.1f}%", .scale = 100, .spread = true},
               words("peer"),
               words("bits"),
               words("alone"),
               percent("bar"),
               words("kernel"),
               words("shapes")});
  for (const DeviceRow& row : r.rows) {
    if (row.part != part) continue;
    const bool by_bytes = row.limit == "B" || row.flops == 0;
    table.add({row.what, row.pass, row.seconds, by_bytes ? Cell() : Cell(row.flops / row.seconds.median),
               by_bytes ? Cell(row.bytes / row.seconds.median) : Cell(), share_cell(row, "P"),
               share_cell(row, "B"), row.peer.empty() ? Cell() : Cell(row.peer_share), row.peer, row.bits,
               row.alone, positive_cell(row.bar), row.kernel, row.shapes});
  }
  return table;
}

/// The row of a part that is nearest to its bar, or farthest below it; nullptr: it has no bars.
const DeviceRow* lowest(const DeviceBenchReport& r, DevicePart part) {
  const DeviceRow* found = nullptr;
  for (const DeviceRow& row : r.rows)
    if (row.part == part && row.bar > 0 && (found == nullptr || row.judged() < found->judged())) found = &row;
  return found;
}

std::string verdicts(const DeviceBenchReport& r) {
  std::string text = "\n";
  for (const DevicePart part : kEveryDevicePart) {
    const DeviceRow* const row = lowest(r, part);
    if (row == nullptr) continue;
    text += fmt::format("{}: at least {:.1f} % of {} ({}{}{}), {:.0f} % are demanded{}\n", name_of(part),
                        100 * row->judged(), row->peer.empty() ? row->limit : row->peer, row->what,
                        row->pass.empty() ? "" : ", ", row->pass, 100 * row->bar,
                        !r.is_real                  ? ""
                        : row->judged() >= row->bar ? ": met"
                                                    : ": missed");
  }
  const auto of = [](DevicePart part) { return [part](const DeviceRow& row) { return row.part == part; }; };
  if (std::any_of(r.rows.begin(), r.rows.end(), of(DevicePart::attention)))
    text += "attention: 35 % of cuDNN are demanded, which is not measured here\n";
  for (const std::string& what : r.left_out) text += "no kernel takes: " + what + "\n";
  return text;
}

}  // namespace

std::string to_text(const DeviceBenchReport& r) {
  std::vector<Table> tables;
  for (const DevicePart part : kEveryDevicePart) tables.push_back(table_of(r, part));
  return fmt::format(
             "device '{}': {}{}\nP = {:.1f} TFLOP/s, {}; B = {:.1f} GB/s, a copy within the device, "
             "read and written\npeer: {}\n",
             r.kind, r.device,
             r.is_real ? "" : "; no GPU: these times and rates mean nothing, they show that all runs",
             1e-12 * r.peak.median, r.peak_of, 1e-9 * r.copy.median, r.peer) +
         text_of(tables) + verdicts(r);
}

std::string to_json(const DeviceBenchReport& r) {
  Json rows = Json::array();
  for (const DeviceRow& row : r.rows) {
    Json j{{"part", name_of(row.part)}, {"what", row.what},   {"pass", row.pass},   {"shapes", row.shapes},
           {"kernel", row.kernel},      {"flops", row.flops}, {"bytes", row.bytes}, {"seconds", row.seconds}};
    if (!row.limit.empty()) j["limit"] = row.limit, j["share_of_limit"] = row.limit_share;
    if (!row.peer.empty()) {
      j["peer"] = row.peer, j["peer_seconds"] = row.peer_seconds, j["share_of_peer"] = row.peer_share;
      if (!row.bits.empty()) j["bits"] = row.bits;
      if (!row.alone.empty()) j["alone"] = row.alone;
    }
    if (row.bar > 0) j["bar"] = row.bar;
    rows.push_back(std::move(j));
  }
  const Json all{{"format", 1},
                 {"device_kind", r.kind},
                 {"device", r.device},
                 {"is_real", r.is_real},
                 {"peer", r.peer},
                 {"peak_of", r.peak_of},
                 {"peak_flops_per_second", r.peak},
                 {"copy_bytes_per_second", r.copy},
                 {"rows", std::move(rows)},
                 {"left_out", r.left_out}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
