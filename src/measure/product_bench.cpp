// See product_bench.h.
#include "measure/product_bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "measure/product_operand.h"
#include "report/table.h"

namespace ingot {
namespace {

constexpr double kLeastGain = 1.02;
constexpr int kPairsOfTrial = 3;

ProductKey key_of(const Product& p, GemmForm form, DType type, bool accumulate) {
  const bool half = type == DType::bf16, weight = form == GemmForm::tn;
  ProductKey key{.m = p.rows, .n = p.n, .k = p.k, .form = form, .accumulate = accumulate};
  if (form == GemmForm::nn) std::swap(key.n, key.k);
  if (weight) key.m = p.n, key.n = p.k, key.k = p.rows;
  if (half) key.a = ElementType::bf16, key.b = weight ? ElementType::bf16 : ElementType::rounded;
  if (half && !weight) key.c = ElementType::bf16;
  key.threads = num_threads();
  return key;
}

DType stored_type(ElementType type) {
  return type == ElementType::bf16 ? DType::bf16 : DType::f32;
}

double bytes_of(const ProductKey& p) {
  const auto bytes = [](int64_t rows, int64_t columns, ElementType type) {
    return static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(size_of(stored_type(type)));
  };
  return bytes(p.m, p.k, p.a) + bytes(p.k, p.n, p.b) + bytes(p.m, p.n, p.c);
}

/// Times products made by a choice on operands that all share.
class ChoiceTimer {
 public:
  explicit ChoiceTimer(double seconds) : seconds_(seconds) {}

  double operator()(const ProductKey& p, const ProductChoice& choice) {
    ProductChoices one;
    one.add(p, choice);
    const ScopedProductChoices installed(one);
    const GemmArgs args = args_of(p);
    return mean_call_seconds(seconds_, [&] { gemm(args); });
  }

 private:
  GemmArgs args_of(const ProductKey& p) {
    GemmArgs g;
    g.m = p.m, g.n = p.n, g.k = p.k;
    g.a_type = stored_type(p.a), g.b_type = stored_type(p.b), g.c_type = stored_type(p.c);
    g.a = a_.get(g.a_type, p.m * p.k), g.b = b_.get(g.b_type, p.k * p.n);
    g.c = grown_product_memory<float>(c_, p.m * p.n);
    g.a_transposed = p.form == GemmForm::tn, g.b_transposed = p.form == GemmForm::nt;
    g.lda = g.a_transposed ? p.m : p.k, g.ldb = g.b_transposed ? p.k : p.n, g.ldc = p.n;
    g.accumulate = p.accumulate, g.round_b = p.b == ElementType::rounded;
    return g;
  }

  double seconds_;
  ProductOperand a_{1}, b_{2};
  Buffer c_;
};

ProductChoice fastest(const ProductKey& p, const std::vector<ProductChoice>& ways, int trials,
                      ChoiceTimer& timer) {
  const auto seconds = interleaved(trials, ways.size(), [&](size_t i) { return timer(p, ways[i]); });
  size_t best = 0;
  for (size_t i = 1; i < ways.size(); ++i)
    if (spread_of(seconds[i]).median < spread_of(seconds[best]).median) best = i;
  return ways[best];
}

/// First the way, then its kc; the pairs judge the two anew, since the fastest of many is lucky too.
void try_product(ProductTrial& trial, const GemmBenchOptions& o, ChoiceTimer& timer) {
  trial.way = fastest(trial.product, ways_to_make(trial.product), o.trials, timer);
  std::vector<ProductChoice> ways = with_each_kc(trial.product, trial.way);
  ways.push_back(trial.way);
  trial.way = fastest(trial.product, ways, o.trials, timer);
  const auto pairs = interleaved(kPairsOfTrial * o.trials, 2, [&](size_t i) {
    return timer(trial.product, i == 0 ? ProductChoice{} : trial.way);
  });
  trial.rule_seconds = pairs[0], trial.way_seconds = pairs[1];
}

/// Of the pairs, in order.
std::vector<double> gains_of(const ProductTrial& t) {
  std::vector<double> gains;
  for (size_t i = 0; i < t.rule_seconds.size(); ++i) gains.push_back(t.rule_seconds[i] / t.way_seconds[i]);
  std::sort(gains.begin(), gains.end());
  return gains;
}

double gflops(const ProductTrial& t, const std::vector<double>& seconds) {
  return 1e-9 * t.flops() / spread_of(seconds).median;
}

}  // namespace

double ProductTrial::flops() const {
  return 2 * static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
}

double ProductTrial::gain() const {
  return spread_of(gains_of(*this)).median;
}

bool ProductTrial::is_faster() const {
  const std::vector<double> gains = gains_of(*this);
  return gains[gains.size() / 4] > 1 && gain() >= kLeastGain;
}

std::vector<ProductTrial> products_to_try(const Recipe& recipe, const GemmBenchOptions& o) {
  std::vector<ProductTrial> all;
  for (const Product& p : products_of(recipe)) {
    if (p.grouped() || p.name == "head" || p.name == "low_rank") continue;
    for (const DType type : o.types)
      for (const GemmForm form : kEveryGemmForm)
        for (const bool accumulate : {false, true})
          if (!accumulate || form == GemmForm::tn)  // micro-batches add their gradients of weights
            all.push_back({p.name, key_of(p, form, type, accumulate), {}, {}, {}});
  }
  return all;
}

ProductTrials try_products(const Recipe& recipe, const GemmBenchOptions& o) {
  if (o.trials < 1 || o.types.empty())
    throw Error("nothing to measure", "give at least one trial and one type");
  ProductTrials r;
  r.of = recipe.model.preset.empty() ? "own model" : recipe.model.preset;
  ChoiceTimer timer(o.seconds);
  for (ProductTrial& trial : products_to_try(recipe, o)) {
    if (bytes_of(trial.product) > static_cast<double>(o.largest)) {
      r.left_out.push_back(text_of(trial.product));
      continue;
    }
    try_product(trial, o, timer);
    r.trials.push_back(std::move(trial));
  }
  return r;
}

ProductTable table_of(const ProductTrials& r, ProductTable before) {
  ProductTable table = empty_product_table();
  table.rows = std::move(before.rows);
  for (const ProductTrial& t : r.trials) {
    std::erase_if(table.rows, [&](const ProductTableRow& row) { return row.product == t.product; });
    if (t.is_faster()) table.rows.push_back({t.product, t.way});
  }
  return table;
}

std::string to_text(const ProductTrials& r) {
  Table table({words("weight"),
               words("product"),
               number("rule, GFLOP/s", 1),
               number("fastest way", 1),
               {.title = "gain", .format = "{:+.1f} %", .scale = 100},
               words("made with"),
               words("kept")});
  int64_t kept = 0;
  for (const ProductTrial& t : r.trials) {
    kept += t.is_faster();
    table.add({t.name, text_of(t.product), gflops(t, t.rule_seconds), gflops(t, t.way_seconds), t.gain() - 1,
               text_of(t.way), t.is_faster() ? "yes" : "no"});
  }
  std::string text =
      fmt::format("{}: {}, of which {} have a way that is faster than the rule by {:.0f} % or more\n", r.of,
                  count_of(static_cast<int64_t>(r.trials.size()), "product"), kept, 100 * (kLeastGain - 1)) +
      table.text();
  for (const std::string& product : r.left_out)
    text += fmt::format("left out, larger than --largest: {}\n", product);
  return text;
}

std::string to_json(const ProductTrials& r) {
  using Json = nlohmann::ordered_json;
  Json products = Json::array();
  for (const ProductTrial& t : r.trials)
    products.push_back({{"name", t.name},
                        {"product", text_of(t.product)},
                        {"flops", t.flops()},
                        {"rule_seconds", spread_of(t.rule_seconds)},
                        {"way", text_of(t.way)},
                        {"way_seconds", spread_of(t.way_seconds)},
                        {"gain", t.gain()},
                        {"kept", t.is_faster()}});
  const Json all{{"format", 1}, {"of", r.of}, {"products", std::move(products)}, {"left_out", r.left_out}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
