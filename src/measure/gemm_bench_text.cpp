// See gemm_bench.h: tables, sizing advice, JSON and the page.
#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/build_info.h"
#include "base/progress.h"
#include "measure/gemm_bench.h"
#include "report/report.h"
#include "report/svg_plot.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using RowSet = std::vector<const GemmRow*>;

/// RowSet of one product, in the order of the report.
std::vector<RowSet> by_product(const GemmBenchReport& r, GemmPart part) {
  std::vector<RowSet> groups;
  for (const GemmRow& row : r.rows) {
    if (row.part != part) continue;
    const auto same = [&](const RowSet& g) {
      const Product &a = g.front()->product, &b = row.product;
      return a.name == b.name && a.experts == b.experts && a.rows == b.rows && a.n == b.n && a.k == b.k &&
             a.uneven == b.uneven;
    };
    const auto at = std::find_if(groups.begin(), groups.end(), same);
    if (at == groups.end())
      groups.push_back({&row});
    else
      at->push_back(&row);
  }
  return groups;
}

RowSet of_type(const RowSet& rows, DType type) {
  RowSet some;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(some),
               [&](const GemmRow* r) { return r->type == type; });
  return some;
}

std::vector<DType> types_of(const GemmBenchReport& r) {
  std::vector<DType> types;
  for (const GemmRow& row : r.rows)
    if (std::find(types.begin(), types.end(), row.type) == types.end()) types.push_back(row.type);
  return types;
}

/// What all of these reach together, by one end of each spread.
double combined(const RowSet& rows, double Spread::*end) {
  double flops = 0, time = 0;
  for (const GemmRow* r : rows) flops += r->flops(), time += r->flops() / (r->share.*end);
  return flops / time;
}

double widest(const RowSet& rows) {
  double widest = 0;
  for (const GemmRow* r : rows) widest = std::max(widest, (r->share.most - r->share.least) / r->share.median);
  return widest;
}

std::string product_table(const GemmBenchReport& r, GemmPart part, const char* title) {
  const std::vector<RowSet> groups = by_product(r, part);
  if (groups.empty()) return "";
  const std::vector<DType> types = types_of(r);
  size_t name = std::string(title).size();
  for (const RowSet& g : groups) name = std::max(name, g.front()->product.name.size());
  std::string text = fmt::format("\n{:<{}} {:>5} {:>7} {:>8} {:>7} {:>7}", title, name, "times", "experts",
                                 "rows", "n", "k");
  for (const DType type : types) text += fmt::format(" | {:>4} NT     NN     TN    all", name_of(type));
  text += " | spread\n";
  for (const RowSet& g : groups) {
    const Product& p = g.front()->product;
    const std::string rows =
        p.uneven ? fmt::format("~{}", p.rows / p.experts) : std::to_string(p.rows / p.experts);
    text +=
        fmt::format("{:<{}} {:>5} {:>7} {:>8} {:>7} {:>7}", p.name, name, p.count, p.experts, rows, p.n, p.k);
    for (const DType type : types) {
      const RowSet some = of_type(g, type);
      text += " |";
      for (const GemmRow* row : some) text += fmt::format(" {:>5.1f}%", 100 * row->share.median);
      text += fmt::format(" {:>5.1f}%", 100 * combined_share(some));
    }
    text += fmt::format(" | {:>4.0f} %\n", 100 * widest(g));
  }
  return text;
}

std::string map_text(const GemmBenchReport& r) {
  std::string text;
  for (const DType type : types_of(r)) {
    std::set<int64_t> depths, columns;
    for (const GemmRow& row : r.rows)
      if (row.part == GemmPart::map && row.type == type)
        depths.insert(row.product.k), columns.insert(row.product.n);
    for (const int64_t k : depths) {
      text += fmt::format("\n{} NT, k = {:<6} {:>6}", name_of(type), k, "m \\ n");
      for (const int64_t n : columns) text += fmt::format(" {:>7}", n);
      int64_t open = -1;
      for (const GemmRow& row : r.rows) {
        if (row.part != GemmPart::map || row.type != type || row.product.k != k) continue;
        if (row.product.rows != open) text += fmt::format("\n{:>25}", open = row.product.rows);
        text += fmt::format(" {:>6.1f}%", 100 * row.share.median);
      }
      text += "\n";
    }
  }
  return text;
}

std::string decode_text(const GemmBenchReport& r) {
  if (r.decode.empty()) return "";
  size_t name = 0;
  for (const DecodeRow& d : r.decode) name = std::max(name, d.product.name.size());
  std::string text = "\nfew rows, weights from memory: GB/s of weights, share of B\n";
  text += fmt::format("{:<{}} {:>5} {:>7} {:>7} {:>6} | {:>16} | {:>16}\n", "", name, "rows", "n", "k",
                      "type", "as stored", "packed");
  for (size_t i = 0; i + 1 < r.decode.size(); i += 2) {
    const DecodeRow& d = r.decode[i];
    text += fmt::format("{:<{}} {:>5} {:>7} {:>7} {:>6}", d.product.name, name, d.product.rows, d.product.n,
                        d.product.k, name_of(d.type));
    for (size_t k = i; k < i + 2; ++k) {
      const double gbs = 1e-9 * r.decode[k].bytes_per_second.median;
      text += fmt::format(" | {:>8.1f} {:>6.1f}%", gbs, 100 * gbs / r.read_gbs);
    }
    text += "\n";
  }
  return text;
}

std::string lines(const char* title, const std::vector<std::string>& all) {
  std::string text = all.empty() ? "" : fmt::format("\n{}\n", title);
  for (const std::string& line : all) text += "  " + line + "\n";
  return text;
}

/// A table with cells coloured by their share.
std::string map_html(const GemmBenchReport& r, DType type, int64_t k) {
  std::set<int64_t> columns;
  std::map<int64_t, std::map<int64_t, const GemmRow*>> grid;
  for (const GemmRow& row : r.rows)
    if (row.part == GemmPart::map && row.type == type && row.product.k == k)
      columns.insert(row.product.n), grid[row.product.rows][row.product.n] = &row;
  std::string out = fmt::format(
      "<figure class=card><figcaption><b>{} operands, k = {}</b><span>% of P; m down, n "
      "across</span></figcaption>",
      name_of(type), k);
  out += "<table><tr><th></th>";
  for (const int64_t n : columns) out += fmt::format("<th>{}</th>", n);
  for (const auto& [m, cells] : grid) {
    out += fmt::format("</tr><tr><th>{}</th>", m);
    for (const auto& [n, row] : cells) {
      const double share = std::clamp(row->share.median, 0.0, 1.0);
      out += fmt::format(
          "<td class=num style='background:hsl({:.0f} 60% 50% / 0.55)' title='{:.1f} GFLOP/s, spread "
          "{}'>{:.0f}</td>",
          130 * share, 1e-9 * row->flops() / row->seconds.median, width_of(row->share), 100 * share);
    }
  }
  return out + "</tr></table></figure>";
}

}  // namespace

double combined_share(const std::vector<const GemmRow*>& rows) {
  return combined(rows, &Spread::median);
}

std::vector<std::string> sizing_rules(const ModelConfig& m, int64_t rows) {
  std::vector<std::string> found;
  const auto check = [&](const char* what, int64_t size, int64_t unit) {
    if (size > 0 && size % unit != 0)
      found.push_back(fmt::format("{} = {} is no multiple of {}: the next are {} and {}", what, size, unit,
                                  size / unit * unit, (size / unit + 1) * unit));
  };
  check("rows of a forward pass", rows, 64);
  check("model.vocab", m.vocab, 64);
  check("model.width", m.width, 64);
  check("model.head_width", m.key_width(), m.key_width() < 64 ? 16 : 64);
  if (m.moe.experts == 0 || m.moe.first_dense > 0) check("model.hidden", m.mlp_hidden(), 64);
  if (m.moe.experts > 0) check("model.moe.hidden", m.moe.hidden, 64);
  return found;
}

std::vector<std::string> sizing_advice(const GemmBenchReport& r) {
  constexpr double kGain = 1.03;
  std::vector<std::string> advice;
  const std::vector<RowSet> nearby = by_product(r, GemmPart::advice);
  for (const RowSet& all : by_product(r, GemmPart::model)) {
    const Product& own = all.front()->product;
    for (int64_t Product::*width : {&Product::n, &Product::k}) {
      int64_t Product::*other = width == &Product::n ? &Product::k : &Product::n;
      const RowSet* best = nullptr;
      for (const RowSet& near : nearby) {
        const Product& p = near.front()->product;
        if (p.name != own.name || p.experts != own.experts || p.*other != own.*other ||
            p.*width == own.*width)
          continue;
        if (best == nullptr || combined_share(near) > combined_share(*best)) best = &near;
      }
      if (best == nullptr) continue;
      const RowSet mine = of_type(all, best->front()->type);
      const double now = combined_share(mine), then = combined_share(*best);
      if (then < kGain * now || combined(*best, &Spread::least) <= combined(mine, &Spread::most)) continue;
      const int64_t size = best->front()->product.*width;
      const double larger = static_cast<double>(size) / static_cast<double>(own.*width);
      advice.push_back(
          fmt::format("{}: {} {} reach {:.1f} % of P, {} would reach {:.1f} %: {:+.1f} % of the weights for "
                      "{:+.1f} % of the time",
                      own.name, own.*width, width == &Product::n ? "outputs" : "inputs", 100 * now, size,
                      100 * then, 100 * (larger - 1), 100 * (larger * now / then - 1)));
    }
  }
  return advice;
}

std::string to_text(const GemmBenchReport& r) {
  std::string text = fmt::format(
      "{}: {} thread{}, {} kernels; shares of P = {:.0f} GFLOP/s of fp32, measured around each trial; B = "
      "{:.1f} GB/s\n",
      r.of, r.threads, r.threads == 1 ? "" : "s", r.isa, r.peak_gflops, r.read_gbs);
  text += product_table(r, GemmPart::model, "products of the model");
  text += product_table(r, GemmPart::experts, "rows an expert (~: uneven)");
  text += map_text(r);
  text += decode_text(r);
  text += lines("sizing, measured:", sizing_advice(r));
  text += lines(
      "sizing, by the AMD paper's rule of powers of two up to 64 (measured above whether it matters here):",
      r.rules);
  return text + lines("left out, larger than --largest:", r.left_out);
}

std::string to_json(const GemmBenchReport& r) {
  Json products = Json::array(), decode = Json::array();
  for (const GemmRow& row : r.rows) {
    const Product& p = row.product;
    products.push_back({{"part", name_of(row.part)},
                        {"name", p.name},
                        {"times", p.count},
                        {"experts", p.experts},
                        {"rows", p.rows},
                        {"uneven", p.uneven},
                        {"n", p.n},
                        {"k", p.k},
                        {"form", name_of(row.form)},
                        {"type", name_of(row.type)},
                        {"flops", row.flops()},
                        {"seconds", row.seconds},
                        {"share_of_peak", row.share}});
  }
  for (const DecodeRow& d : r.decode)
    decode.push_back({{"name", d.product.name},
                      {"rows", d.product.rows},
                      {"n", d.product.n},
                      {"k", d.product.k},
                      {"type", name_of(d.type)},
                      {"packed", d.packed},
                      {"bytes_per_second", d.bytes_per_second},
                      {"share_of_read", 1e-9 * d.bytes_per_second.median / r.read_gbs}});
  const Json all{{"format", 1},
                 {"of", r.of},
                 {"isa", r.isa},
                 {"threads", r.threads},
                 {"peak_gflops", r.peak_gflops},
                 {"read_gigabytes_per_second", r.read_gbs},
                 {"products", std::move(products)},
                 {"decode", std::move(decode)},
                 {"advice", sizing_advice(r)},
                 {"rules", r.rules},
                 {"left_out", r.left_out}};
  return all.dump(1) + "\n";
}

std::string render_gemm_page(const GemmBenchReport& r) {
  std::set<std::pair<DType, int64_t>> maps;
  for (const GemmRow& row : r.rows)
    if (row.part == GemmPart::map) maps.insert({row.type, row.product.k});
  std::string body;
  if (!maps.empty()) body += "<h2>Shapes</h2><div class=columns>";
  for (const auto& [type, k] : maps) body += map_html(r, type, k);
  if (!maps.empty()) body += "</div>";
  body += "<h2>Tables</h2><div class=card><pre>" + escape_html(to_text(r)) + "</pre></div>";
  return render_page(
      "Matrix products",
      fmt::format("{}, {} threads, {} kernels, P = {:.0f} GFLOP/s", r.of, r.threads, r.isa, r.peak_gflops),
      build_info().version, body);
}

}  // namespace ingot
