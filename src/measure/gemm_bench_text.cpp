// The report of gemm_bench.h: tables, sizing advice, JSON and HTML page.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/build_info.h"
#include "base/progress.h"
#include "measure/gemm_bench.h"
#include "report/plot.h"
#include "report/report.h"
#include "report/table.h"

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

/// Share of P of all rows together, by one member of each spread.
double combined(const RowSet& rows, double Spread::*end) {
  double flops = 0, time = 0;
  for (const GemmRow* r : rows) flops += r->flops(), time += r->flops() / (r->share.*end);
  return flops / time;
}

double widest(const RowSet& rows) {
  double widest = 0;
  for (const GemmRow* r : rows) widest = std::max(widest, r->share.width());
  return widest;
}

Table product_table(const GemmBenchReport& r, GemmPart part, const char* title) {
  const std::vector<DType> types = types_of(r);
  std::vector<Column> columns{words(title)};
  for (const char* size : {"times", "experts", "rows", "n", "k"}) columns.push_back({.title = size});
  const auto share = [](std::string name, DType type) {
    return Column{
        .title = std::move(name), .format = "{:.1f}%", .scale = 100, .heat = true, .group = name_of(type)};
  };
  for (const DType type : types) {
    for (const GemmForm form : kEveryGemmForm) columns.push_back(share(name_of(form), type));
    columns.push_back(share("all", type));
  }
  columns.push_back({.title = "spread", .format = "{:.0f} %", .scale = 100});
  Table table(std::move(columns));
  for (const RowSet& g : by_product(r, part)) {
    const Product& p = g.front()->product;
    std::vector<Cell> cells{
        p.name, p.count, p.experts, fmt::format("{}{}", p.uneven ? "~" : "", p.rows / p.experts), p.n, p.k};
    for (const DType type : types) {
      const RowSet some = of_type(g, type);
      for (size_t i = 0; i < std::size(kEveryGemmForm); ++i)
        cells.push_back(i < some.size() ? Cell(some[i]->share.median) : Cell());
      cells.push_back(some.empty() ? Cell() : Cell(combined_share(some)));
    }
    cells.push_back(widest(g));
    table.add(std::move(cells));
  }
  return table;
}

/// A table of rows m by columns n for each type and depth k; n varies fastest in the report.
std::vector<Table> map_tables(const GemmBenchReport& r) {
  std::map<std::pair<DType, int64_t>, std::map<int64_t, std::map<int64_t, double>>> maps;
  for (const GemmRow& row : r.rows)
    if (row.part == GemmPart::map)
      maps[{row.type, row.product.k}][row.product.rows][row.product.n] = row.share.median;
  std::vector<Table> tables;
  for (const auto& [key, grid] : maps) {
    std::vector<Column> columns{{.title = "m \\ n"}};
    for (const auto& [n, share] : grid.begin()->second)
      columns.push_back({.title = std::to_string(n), .format = "{:.1f}%", .scale = 100, .heat = true});
    Table table(std::move(columns),
                fmt::format("{} operands, k = {}, NT, % of P", name_of(key.first), key.second));
    for (const auto& [m, shares] : grid) {
      std::vector<Cell> cells{m};
      for (const auto& [n, share] : shares) cells.push_back(share);
      table.add(std::move(cells));
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

Table decode_table(const GemmBenchReport& r) {
  std::vector<Column> columns{words("")};
  for (const char* size : {"rows", "n", "k", "type"}) columns.push_back({.title = size});
  for (const char* how : {"as stored", "packed"}) {
    columns.push_back(number("GB/s", 1, 1, how));
    columns.push_back(percent("of B", how));
  }
  Table table(std::move(columns), "few rows, weights from memory: GB/s of weights, share of B");
  for (size_t i = 0; i + 1 < r.decode.size(); i += 2) {
    const DecodeRow& d = r.decode[i];
    std::vector<Cell> cells{d.product.name, d.product.rows, d.product.n, d.product.k, name_of(d.type)};
    for (size_t k = i; k < i + 2; ++k) {
      const double gbs = 1e-9 * r.decode[k].bytes_per_second.median;
      cells.insert(cells.end(), {gbs, gbs / r.read_gbs});
    }
    table.add(std::move(cells));
  }
  return table;
}

std::vector<Table> tables_of(const GemmBenchReport& r) {
  std::vector<Table> all{product_table(r, GemmPart::model, "products of the model"),
                         product_table(r, GemmPart::experts, "rows per expert (~: uneven)")};
  std::vector<Table> maps = map_tables(r);
  all.insert(all.end(), std::make_move_iterator(maps.begin()), std::make_move_iterator(maps.end()));
  all.push_back(decode_table(r));
  return all;
}

std::string heading(const GemmBenchReport& r) {
  return fmt::format(
      "{}: {}, {} kernels; shares are of P = {:.0f} GFLOP/s of fp32, measured around each trial; B = {:.1f} "
      "GB/s",
      r.of, count_of(r.threads, "thread"), r.isa, r.peak_gflops, r.read_gbs);
}

std::string lines(const char* title, const std::vector<std::string>& all) {
  std::string text = all.empty() ? "" : fmt::format("\n{}\n", title);
  for (const std::string& line : all) text += "  " + line + "\n";
  return text;
}

std::string advice_text(const GemmBenchReport& r) {
  return lines("sizing, measured:", sizing_advice(r)) +
         lines("sizing, by the rules of [ZAYA1-AMD] §V-A, multiples of powers of two up to 64:", r.rules) +
         lines("left out, larger than --largest:", r.left_out);
}

}  // namespace

double combined_share(const std::vector<const GemmRow*>& rows) {
  return combined(rows, &Spread::median);
}

std::vector<std::string> sizing_rules(const ModelConfig& m, int64_t batch, int64_t length, int64_t tensor) {
  std::vector<std::string> found;
  const auto check = [&](const char* what, int64_t size, int64_t unit, int64_t ranks = 1) {
    const int64_t all = unit * ranks;
    if (size <= 0 || size % all == 0) return;
    const int64_t below = size / all * all;
    found.push_back(fmt::format(
        "{} = {} is not a multiple of {}{}: the nearest {}", what, size, unit,
        ranks > 1 ? fmt::format(" on each of {} tensor ranks", ranks) : "",
        below > 0 ? fmt::format("are {} and {}", below, below + all) : fmt::format("is {}", all)));
  };
  const auto check_heads = [&](const char* what, int64_t heads) {
    if (batch * heads % tensor != 0)
      found.push_back(fmt::format("sequences x {} = {} x {} do not divide among {} tensor ranks", what, batch,
                                  heads, tensor));
  };
  check("rows of a forward pass", batch * length, 64);
  check("model.vocab", m.vocab, 64);
  check("model.width", m.width, 64, tensor);
  check("model.head_width", m.key_width(), m.key_width() < 64 ? 16 : 64);
  check_heads("model.heads", m.heads);
  check_heads("model.kv_heads", m.kv_heads);
  if (m.moe.experts == 0 || m.moe.first_dense > 0) check("model.hidden", m.mlp_hidden(), 64, tensor);
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
  return heading(r) + "\n" + text_of(tables_of(r)) + advice_text(r);
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
  return render_page(
      "Matrix products", heading(r), build_info().version,
      html_of(tables_of(r)) + "<div class=card><pre>" + escape_html(advice_text(r)) + "</pre></div>");
}

}  // namespace ingot
