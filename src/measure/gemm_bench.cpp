// See gemm_bench.h: the products of a model and their measurement. The report is in gemm_bench_text.cpp.
#include "measure/gemm_bench.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/parallel.h"
#include "device/simd/isa.h"
#include "measure/machine.h"
#include "measure/peak_trial.h"
#include "measure/product_operand.h"
#include "measure/read_rate.h"
#include "measure/step_bench.h"
#include "tensor/arena.h"
#include "tensor/buffer.h"

namespace ingot {
namespace {

/// "layers.3.mlp.up.weight" -> "mlp.up".
std::string short_name(std::string name) {
  if (name.starts_with("layers.")) name = name.substr(name.find('.', 7) + 1);
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  return name;
}

void add_product(std::vector<Product>& all, const Product& p) {
  for (Product& known : all)
    if (known.experts == p.experts && known.rows == p.rows && known.n == p.n && known.k == p.k) {
      ++known.count;
      if ((", " + known.name + ",").find(", " + p.name + ",") == std::string::npos)
        known.name += ", " + p.name;
      return;
    }
  all.push_back(p);
  all.back().count = 1;
}

/// Runs the product of a row on operands that all rows share.
class ProductRunner {
 public:
  void run(const GemmRow& row) {
    const Product& p = row.product;
    const bool weight = row.form == GemmForm::tn;
    const int64_t width = row.form == GemmForm::nn ? p.k : p.n, depth = row.form == GemmForm::nn ? p.n : p.k;
    const DType c_type = weight ? DType::f32 : row.type;
    const void* a = a_.get(row.type, p.rows * (weight ? p.n : depth));
    const void* b = b_.get(row.type, weight ? p.rows * p.k : p.experts * p.n * p.k);
    c_ = grown_product_memory<float>(results_, weight ? p.experts * p.n * p.k : p.rows * width);
    if (p.grouped()) return run_grouped(row, a, b, c_type);
    GemmArgs g;
    g.m = weight ? p.n : p.rows, g.n = weight ? p.k : width, g.k = weight ? p.rows : depth;
    g.a = a, g.a_type = row.type, g.a_transposed = weight, g.lda = weight ? g.m : g.k;
    g.b = b, g.b_type = row.type, g.b_transposed = row.form == GemmForm::nt,
    g.ldb = g.b_transposed ? g.k : g.n;
    g.c = c_, g.c_type = c_type, g.ldc = g.n;
    gemm(g);
  }

 private:
  void run_grouped(const GemmRow& row, const void* a, const void* b, DType c_type) {
    const Product& p = row.product;
    const std::vector<int64_t> offsets = p.offsets();
    const bool weight = row.form == GemmForm::tn;
    GroupedGemmArgs g;
    g.experts = p.experts, g.offsets = offsets.data();
    g.n = row.form == GemmForm::nn ? p.k : p.n, g.k = row.form == GemmForm::nn ? p.n : p.k;
    g.a = a, g.a_type = row.type, g.lda = weight ? g.n : g.k;
    g.b = b, g.b_type = row.type, g.b_transposed = row.form == GemmForm::nt,
    g.ldb = g.b_transposed || weight ? g.k : g.n;
    g.b_stride = p.n * p.k;
    g.c = c_, g.c_type = c_type, g.ldc = weight ? g.k : g.n, g.c_stride = p.n * p.k;
    weight ? gemm_grouped_weight(g) : gemm_grouped(g);
  }

  ProductOperand a_{1}, b_{2};
  Buffer results_;
  float* c_ = nullptr;
};

GemmRow row_of(GemmPart part, const Product& product, GemmForm form, DType type) {
  GemmRow r;
  r.part = part, r.product = product, r.form = form, r.type = type;
  return r;
}

std::vector<GemmRow> rows_of(const std::vector<Product>& products, const GemmBenchOptions& o) {
  std::vector<GemmRow> rows;
  const auto has = [&](GemmPart part) {
    return std::find(o.parts.begin(), o.parts.end(), part) != o.parts.end();
  };
  const auto add = [&](GemmPart part, const Product& p, const std::vector<DType>& types) {
    for (const DType type : types)
      for (const GemmForm form : kEveryGemmForm) rows.push_back(row_of(part, p, form, type));
  };
  for (const Product& p : products)
    if (has(GemmPart::model) || has(GemmPart::advice)) add(GemmPart::model, p, o.types);
  for (const Product& p : products) {
    if (!has(GemmPart::advice)) break;
    for (int64_t Product::*width : {&Product::n, &Product::k})
      for (const int64_t size : sizes_near(p.*width)) {
        Product near = p;
        near.*width = size;
        add(GemmPart::advice, near, {o.types.front()});
      }
  }
  for (const Product& p : products) {
    if (!has(GemmPart::experts) || !p.grouped()) continue;
    for (const int64_t band : o.band)
      for (const bool uneven : {false, true}) {
        Product some = p;
        some.rows = band * p.experts, some.uneven = uneven;
        add(GemmPart::experts, some, o.types);
      }
  }
  if (has(GemmPart::map))
    for (const DType type : o.types)
      for (const int64_t k : o.depths)
        for (const int64_t m : o.sizes)
          for (const int64_t n : o.sizes)
            rows.push_back(row_of(GemmPart::map, {"", 1, m, n, k}, GemmForm::nt, type));
  return rows;
}

void measure(std::vector<GemmRow>& rows, const GemmBenchOptions& o, std::vector<double>& peaks) {
  ProductRunner runner;
  PeakTimer timer(peaks);
  const auto trials = interleaved(o.trials, rows.size(),
                                  [&](size_t i) { return timer(o.seconds, [&] { runner.run(rows[i]); }); });
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].seconds = spread_over(trials[i], &PeakTrial::seconds);
    rows[i].share = spread_over(
        trials[i], [&](const PeakTrial& t) { return rows[i].flops() / t.seconds / (1e9 * t.peak_gflops); });
  }
}

/// Goes over several copies of each weight, so that they do not stay in caches, as far as o.largest allows.
void measure_decode(std::vector<DecodeRow>& rows, const GemmBenchOptions& o) {
  constexpr int64_t kMost = int64_t{1} << 28;
  const int64_t set = std::min(
      {kMost, o.largest, num_threads() * beyond_caches(cache_levels(), num_threads(), num_threads())});
  ProductOperand x(1), weights(2);
  std::vector<float> y;
  for (DecodeRow& row : rows) {
    const Product& p = row.product;
    const int64_t elements = p.n * p.k, bytes = elements * size_of(row.type);
    const int64_t copies = std::max<int64_t>(1, (set + bytes - 1) / bytes);
    const auto* w = static_cast<const std::byte*>(weights.get(row.type, elements * copies));
    std::vector<PackedWeights> packed;
    for (int64_t i = 0; i < copies && row.packed; ++i)
      packed.emplace_back(PackedWeights::Source{w + i * bytes, row.type, false, true, p.k, p.n, p.k},
                          row.type);
    y.resize(std::max(y.size(), static_cast<size_t>(p.rows * p.n)));
    std::vector<double> rates;
    for (int trial = 0; trial <= o.trials; ++trial) {
      const double begin = monotonic_seconds();
      for (int64_t i = 0; i < copies; ++i) {
        GemmArgs g;
        g.m = p.rows, g.n = p.n, g.k = g.lda = g.ldb = p.k;
        g.a = x.get(DType::f32, p.rows * p.k);
        g.b = w + i * bytes, g.b_type = row.type, g.b_transposed = true;
        if (row.packed) g.packed = &packed[static_cast<size_t>(i)];
        g.c = y.data(), g.ldc = p.n;
        gemm(g);
      }
      if (trial > 0) rates.push_back(static_cast<double>(bytes * copies) / (monotonic_seconds() - begin));
    }
    row.bytes_per_second = spread_of(rates);
  }
}

Product product_of(const Tape& tape, const Node& node, const ParameterTable& table) {
  const std::string op = node.op->name;
  const size_t weight = op == "low_rank" ? 2 : 1;
  const Shape x = tape.meta_of(node.inputs[weight - 1]).first.shape;
  const auto [meta, parameter] = tape.meta_of(node.inputs[weight]);
  const Shape& w = meta.shape;
  Product p;
  p.name = parameter >= 0 && op != "head" ? short_name(table[parameter].name) : op;
  p.experts = w.rank() == 3 ? w[0] : 1;
  p.rows = x[0], p.n = w[w.rank() - 2], p.k = w[w.rank() - 1];
  return p;
}

}  // namespace

std::vector<int64_t> Product::offsets() const {
  std::vector<int64_t> all{0};
  for (int64_t e = 0; e < experts; ++e) {
    // Rows of expert e are the mean times 1/2 + e / (E - 1); this is their sum up to expert e.
    const auto before = static_cast<double>(e + 1),
               mean = static_cast<double>(rows) / static_cast<double>(experts);
    const double line =
        experts > 1 ? before / 2 + before * (before - 1) / 2 / static_cast<double>(experts - 1) : before;
    all.push_back(e + 1 == experts ? rows
                                   : static_cast<int64_t>(std::llround(mean * (uneven ? line : before))));
  }
  return all;
}

double GemmRow::flops() const {
  return 2 * static_cast<double>(product.rows) * static_cast<double>(product.n) *
         static_cast<double>(product.k);
}

double GemmRow::bytes() const {
  const Product& p = product;
  return static_cast<double>(size_of(type)) *
         static_cast<double>(p.rows * (p.n + p.k) + p.experts * p.n * p.k);
}

std::vector<Product> products_of(const Recipe& recipe) {
  const PhaseConfig& phase = recipe.phases.at(0);
  if (recipe.model.vocab < 2)
    throw Error("the model has no vocabulary: it takes the tokenizer's", "set model.vocab, or give --vocab");
  const TrainEngine engine(for_one_rank(recipe), Backing::nothing);
  const Model& model = engine.model();
  const StepOptions options = step_options(engine.recipe(), model, phase, phase.micro());
  std::vector<Product> all;
  record_forward(model, options, phase.micro(), phase.sequence, [&](const Tape& tape) {
    for (const Node& node : tape.nodes())
      if (is_product(node.op->name)) add_product(all, product_of(tape, node, model.weights().table()));
  });
  return all;
}

std::vector<int64_t> sizes_near(int64_t size) {
  const int64_t unit = size >= 256 ? 64 : 16;
  std::vector<int64_t> near;
  for (const int64_t s : {(size - 1) / unit * unit, (size / unit + 1) * unit})
    if (s > 0 && 8 * std::abs(s - size) <= size) near.push_back(s);
  return near;
}

GemmBenchReport bench_gemm(const Recipe& recipe, const GemmBenchOptions& o) {
  if (o.trials < 1 || o.types.empty())
    throw Error("nothing to measure", "give at least one trial and one type");
  GemmBenchReport r;
  r.of = recipe.model.preset.empty() ? "own model" : recipe.model.preset;
  r.isa = isa_name(active_isa());
  r.threads = num_threads();
  const std::vector<Product> products = products_of(recipe);
  std::set<std::string> left_out;
  for (GemmRow& row : rows_of(products, o)) {
    const Product& p = row.product;
    if (row.bytes() <= static_cast<double>(o.largest))
      r.rows.push_back(std::move(row));
    else
      left_out.insert(fmt::format("{} of {} x {} x {}", p.name, p.rows, p.n, p.k));
  }
  const auto read_rate = [&] { return o.read_gbs > 0 ? o.read_gbs : 1e-9 * ReadRate(r.threads)(); };
  std::vector<double> peaks, reads{read_rate()};
  measure(r.rows, o, peaks);
  for (const Product& p : products)
    for (const int64_t rows : o.decode_rows)
      for (const DType type : o.types)
        for (const bool packed : {false, true}) {
          if (!o.decode || p.grouped()) continue;
          Product few = p;
          few.rows = rows;
          if (p.n * p.k * size_of(type) <= o.largest)
            r.decode.push_back({few, type, packed, {}});
          else
            left_out.insert(fmt::format("{} of {} x {} x {}", p.name, rows, p.n, p.k));
        }
  r.left_out.assign(left_out.begin(), left_out.end());
  measure_decode(r.decode, o);
  peaks.push_back(fma_peak_gflops()), reads.push_back(read_rate());
  r.peak_gflops = spread_of(peaks).median, r.read_gbs = spread_of(reads).median;
  const PhaseConfig& phase = recipe.phases[0];
  r.rules = sizing_rules(recipe.model, phase.micro(), phase.sequence, recipe.parallel.tensor);
  return r;
}

}  // namespace ingot
