// `ingot bench gemm`: the products of a model, advice that follows from measurements, and every flag.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/gemm_bench.h"
#include "measure/product_bench.h"
#include "measure/step_bench.h"
#include "models/presets.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::gemm_bench_runs_test {

using nlohmann::json;

const Product* find(const std::vector<Product>& all, int64_t experts, int64_t rows, int64_t n, int64_t k) {
  for (const Product& p : all)
    if (p.experts == experts && p.rows == rows && p.n == n && p.k == k) return &p;
  return nullptr;
}

TEST(GemmBench, ProductsAreThoseOfTheModel) {
  const Recipe dense = preset_recipe({.preset = "gpt2", .batch = 2, .length = 128}, {"--model.layers=3"});
  const std::vector<Product> all = products_of(dense);
  ASSERT_EQ(all.size(), 5u);
  using Expected = std::tuple<int64_t, int64_t, int64_t>;

  for (const auto& [n, k, count] : {Expected{2304, 768, 3},
                                    {768, 768, 3},
                                    {3072, 768, 3},
                                    {768, 3072, 3},
                                    {dense.model.head_rows(), 768, 1}}) {
    const Product* p = find(all, 1, 256, n, k);
    ASSERT_NE(p, nullptr) << n << " x " << k;
    EXPECT_EQ(p->count, count);
    EXPECT_FALSE(p->name.empty());
  }
  double flops = 0;  // what ops count, forward
  for (const Product& p : all) flops += 2.0 * static_cast<double>(p.count * p.rows * p.n * p.k);
  const Model model(dense.model, dense.model_precision(), {}, Backing::nothing);
  const StepPlan plan = plan_step(model, {.micro_batch = 2}, 2, 128);
  EXPECT_DOUBLE_EQ(flops, plan.work.at("linear").flops[0] + plan.work.at("head").flops[0]);
}

TEST(GemmBench, ExpertsAreGrouped) {
  const std::vector<Product> all =
      products_of(preset_recipe({.preset = "zaya-tiny", .batch = 2, .length = 32, .vocab = 64}, {}));
  int grouped = 0;
  for (const Product& p : all) grouped += p.grouped();
  EXPECT_EQ(grouped, 2) << "up and down";
}

/// A model that no machine of today holds.
TEST(GemmBench, LargeModelsCostNothingToLookAt) {
  const std::vector<Product> all =
      products_of(preset_recipe({.preset = "zaya1-8b", .batch = 1, .length = 4096}, {}));
  EXPECT_NE(find(all, 16, 4096, 4096, 2048), nullptr) << "the paper's expert fc1, 256 rows each";
  EXPECT_NE(find(all, 16, 4096, 2048, 2048), nullptr) << "fc2";
  EXPECT_NE(find(all, 1, 4096, 262272, 2048), nullptr) << "the head";
}

TEST(GemmBench, UnevenRowsAreFromHalfToOneAndAHalf) {
  const Product even{.name = "", .experts = 5, .rows = 500, .n = 1, .k = 1};
  EXPECT_EQ(even.offsets(), (std::vector<int64_t>{0, 100, 200, 300, 400, 500}));
  Product uneven = even;
  uneven.uneven = true;
  EXPECT_EQ(uneven.offsets(), (std::vector<int64_t>{0, 50, 125, 225, 350, 500}));
}

TEST(GemmBench, NearbySizesAreRound) {
  EXPECT_EQ(sizes_near(1000), (std::vector<int64_t>{960, 1024}));
  EXPECT_EQ(sizes_near(1024), (std::vector<int64_t>{960, 1088}));
  EXPECT_EQ(sizes_near(50257), (std::vector<int64_t>{50240, 50304}));
  EXPECT_EQ(sizes_near(130), (std::vector<int64_t>{128, 144}));
  EXPECT_EQ(sizes_near(8), (std::vector<int64_t>{})) << "16 is another model";
}

TEST(GemmBench, RulesNameSizesThatAreNotRound) {
  ModelConfig m = model_preset("gpt2");
  m.vocab = 50257, m.hidden = 3000;
  const std::vector<std::string> rules = sizing_rules(m, 4, 250);
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_NE(rules[0].find("960 and 1024"), std::string::npos) << rules[0];
  EXPECT_NE(rules[1].find("50304"), std::string::npos) << rules[1];
  EXPECT_NE(rules[2].find("model.hidden = 3000"), std::string::npos) << rules[2];
  m.vocab = 50304, m.hidden = 3072;
  EXPECT_TRUE(sizing_rules(m, 4, 256).empty());
}

TEST(GemmBench, RulesCountTheRanksThatShareAProduct) {
  ModelConfig m = model_preset("llama-small");
  m.vocab = 512, m.width = 768, m.hidden = 2048, m.head_width = 64, m.heads = 12, m.kv_heads = 3;
  EXPECT_TRUE(sizing_rules(m, 4, 256, 1).empty());
  EXPECT_TRUE(sizing_rules(m, 4, 256, 4).empty()) << "4 x 3 kv_heads divide among 4 ranks";
  const std::vector<std::string> rules = sizing_rules(m, 1, 256, 8);
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(
      rules[0],
      "model.width = 768 is not a multiple of 64 on each of 8 tensor ranks: the nearest are 512 and 1024");
  EXPECT_EQ(sizing_rules(m, 1, 50)[0],
            "rows of a forward pass = 50 is not a multiple of 64: the nearest is 64");
  EXPECT_EQ(rules[1], "sequences x model.heads = 1 x 12 do not divide among 8 tensor ranks");
  EXPECT_EQ(rules[2], "sequences x model.kv_heads = 1 x 3 do not divide among 8 tensor ranks");
}

GemmRow row(GemmPart part, int64_t n, GemmForm form, double share, double scatter = 0) {
  GemmRow r;
  r.part = part, r.form = form;
  r.product = {.name = "mlp.up", .experts = 1, .rows = 64, .n = n, .k = 256};
  r.share = {share, share - scatter, share + scatter};
  r.seconds = {1, 1, 1};
  return r;
}

TEST(GemmBench, AdviceNamesWidthsThatFallOff) {
  GemmBenchReport r;
  for (const GemmForm form : kEveryGemmForm) {
    r.rows.push_back(row(GemmPart::model, 1000, form, 0.6));
    r.rows.push_back(row(GemmPart::advice, 960, form, 0.61));
    r.rows.push_back(row(GemmPart::advice, 1024, form, 0.8));
  }
  std::vector<std::string> advice = sizing_advice(r);
  ASSERT_EQ(advice.size(), 1u);
  // 1024 / 1000 * 0.6 / 0.8 = 0.768
  for (const char* text : {"1000 outputs reach 60.0 %", "1024 would reach 80.0 %", "+2.4 % of the weights",
                           "-23.2 % of the time"})
    EXPECT_NE(advice[0].find(text), std::string::npos) << text << " in " << advice[0];
  for (GemmRow& some : r.rows)
    if (some.product.n == 1024) some.share.least = 0.5;
  EXPECT_TRUE(sizing_advice(r).empty()) << "what scatters so much proves nothing";
}

TEST(GemmBench, SharesOfThreeProductsAreOfTheirTimeTogether) {
  const GemmRow a = row(GemmPart::model, 64, GemmForm::nt, 0.5),
                b = row(GemmPart::model, 64, GemmForm::nn, 1.0);
  EXPECT_NEAR(combined_share({&a, &b}), 1 / 1.5, 1e-12);
}

test::ProcessResult bench(std::vector<std::string> arguments) {
  std::vector<std::string> command{INGOT_BINARY, "bench", "gemm"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return test::run_process(command);
}

TEST(BenchGemm, MeasuresEveryPartAndWritesThem) {
  const test::TempDir folder;
  const auto r =
      bench({"zaya-tiny", "--batch=2", "--length=16", "--vocab=100", "--trials=2", "--seconds=1e-5",
             "--band=4", "--sizes=16,40", "--depths=24", "--rows=1", "--largest=2MiB", "--model.layers=2",
             "--json", folder / "gemm.json", "--html", folder / "gemm.html"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  for (const char* text :
       {"products of the model", "rows per expert", "m \\ n", "few rows", "model.vocab = 100", "head"})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  const json all = json::parse(test::read_text(folder / "gemm.json"));
  EXPECT_EQ(all["format"], 1);
  std::map<std::string, int> parts;
  for (const auto& p : all["products"]) {
    ++parts[p["part"]];
    EXPECT_GT(p["share_of_peak"]["median"], 0) << p.dump();
    EXPECT_GT(p["seconds"]["least"], 0);
  }
  EXPECT_EQ(parts["experts"], 2 * 1 * 2 * 2 * 3) << "up and down, one band, even and uneven, types, forms";
  EXPECT_EQ(parts["map"], 2 * 2 * 2) << "types, m, n";
  EXPECT_GT(parts["advice"], 0);
  EXPECT_EQ(parts["model"] % 6, 0);
  for (const auto& d : all["decode"]) EXPECT_GT(d["bytes_per_second"]["median"], 0);
  EXPECT_FALSE(all["decode"].empty());
  EXPECT_NE(test::read_text(folder / "gemm.html").find("bf16 operands, k = 24"), std::string::npos);
}

TEST(BenchGemm, FlagsMeasureLess) {
  const test::TempDir folder;
  const auto r = bench({"zaya-tiny", "--batch=2", "--length=16", "--vocab=64", "--trials=1", "--seconds=1e-5",
                        "--parts=model", "--types=bf16", "--largest=20KiB", "--json", folder / "gemm.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const json all = json::parse(test::read_text(folder / "gemm.json"));
  for (const auto& p : all["products"]) {
    EXPECT_EQ(p["part"], "model");
    EXPECT_EQ(p["type"], "bf16");
  }
  EXPECT_TRUE(all["decode"].empty());
  EXPECT_FALSE(all["left_out"].empty());
  EXPECT_NE(r.output.find("left out"), std::string::npos) << r.output;
}

TEST(BenchGemm, WaysAreKeptWherePairsAgree) {
  ProductTrial t;
  t.product = {.m = 4, .n = 4, .k = 4, .threads = 1};
  t.way.transposed = true;
  const auto is_faster = [&](std::vector<double> way) {
    t.rule_seconds.assign(way.size(), 1.0), t.way_seconds = std::move(way);
    return t.is_faster();
  };
  EXPECT_TRUE(is_faster({0.9, 0.9, 0.9, 1.1}));
  EXPECT_FALSE(is_faster({0.9, 0.9, 1.1, 1.1})) << "two of four";
  EXPECT_FALSE(is_faster({0.99, 0.99, 0.99, 0.99})) << "1 %";
  EXPECT_FALSE(is_faster({1.2, 1.2, 1.2, 1.2}));
  ProductTrials all{"model", {t}, {}};
  EXPECT_TRUE(table_of(all).rows.empty());
  is_faster({0.5, 0.5});
  all.trials = {t};
  ASSERT_EQ(table_of(all).rows.size(), 1u);
  EXPECT_EQ(table_of(all).rows[0].choice, t.way);
}

TEST(BenchGemm, ATableKeepsTheRowsOfProductsThatWereNotTried) {
  const ProductKey tried{.m = 4, .n = 4, .k = 4, .threads = 1}, other{.m = 8, .n = 4, .k = 4, .threads = 1};
  ProductTable before = empty_product_table();
  before.rows = {{tried, {.kc = 16}}, {other, {.kc = 32}}};
  ProductTrials all{"model", {{"w", tried, {.transposed = true}, {1, 1}, {0.5, 0.5}}}, {}};
  const ProductTable newer = table_of(all, before);
  ASSERT_EQ(newer.rows.size(), 2u);
  EXPECT_EQ(newer.rows[0].product, other);
  EXPECT_EQ(newer.rows[0].choice.kc, 32);
  EXPECT_EQ(newer.rows[1].choice, all.trials[0].way) << "the newest measurement";
  all.trials[0].way_seconds = {1, 1};
  EXPECT_EQ(table_of(all, before).rows.size(), 1u) << "the rule is as fast, says the newest measurement";
}

TEST(BenchGemm, TriesTheProductsThatStepsMake) {
  const Recipe recipe = preset_recipe({.preset = "gpt2", .batch = 2, .length = 128}, {"--model.layers=1"});
  const std::vector<ProductTrial> all = products_to_try(recipe, {});
  EXPECT_EQ(all.size(), 4u * 2 * 4) << "weights but the head's, types, forms and gradients that are added";
  const auto has = [&](const std::string& text) {
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& t) { return text_of(t.product).starts_with(text); });
  };
  EXPECT_TRUE(has("256 x 3072 x 768 NT, bf16 by rounded to bf16, "));
  EXPECT_TRUE(has("256 x 768 x 3072 NN, f32 by f32 to f32, "));
  EXPECT_TRUE(has("3072 x 768 x 256 TN, bf16 by bf16 to f32, accumulated, "));
}

TEST(BenchGemm, WritesATableThatTheProgramFollows) {
  const test::TempDir folder;
  const std::string table = folder / "table.toml";
  const auto r = bench({"zaya-tiny", "--batch=2", "--length=16", "--vocab=64", "--trials=1", "--seconds=1e-5",
                        "--table", table, "--json", folder / "ways.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const json ways = json::parse(test::read_text(folder / "ways.json"));
  size_t kept = 0;
  for (const auto& p : ways["products"]) kept += p["kept"].get<bool>();
  ProductTable written = parse_product_table(test::read_text(table), table);
  EXPECT_EQ(written.rows.size(), kept);
  EXPECT_GT(ways["products"].size(), 10u);
  written.rows.assign(1, {{.m = 33, .n = 48, .k = 64, .threads = 1}, {.transposed = true}});
  test::write_text(table, write_product_table(written));
  const std::vector<std::string> again{"zaya-tiny",      "--batch=2",  "--length=16",
                                       "--vocab=64",     "--trials=1", "--types=f32",
                                       "--seconds=1e-5", "--table",    table};
  ASSERT_EQ(bench(again).exit_code, 0);
  const ProductTable merged = parse_product_table(test::read_text(table), table);
  ASSERT_FALSE(merged.rows.empty());
  EXPECT_EQ(merged.rows[0].product, written.rows[0].product) << "another run's row stays";
  test::write_text(table, write_product_table(written));
  const auto kernels = [&](const std::string& variable) {
    return test::run_process({"/usr/bin/env", variable, INGOT_BINARY, "kernels", "--json"});
  };
  const std::string named = "INGOT_PRODUCT_TABLE=" + table;
  const json with = json::parse(kernels(named).output), without = json::parse(kernels("A=").output);
  EXPECT_EQ(with["product_table"]["path"], table);
  EXPECT_EQ(with["product_table"]["rows"][0]["product"], "33 x 48 x 64 NT, f32 by f32 to f32, 1 thread");
  EXPECT_EQ(with["product_table"]["rows"][0]["choice"], "C transposed");
  EXPECT_EQ(with["fingerprint"], without["fingerprint"]) << "bits are the same";
  EXPECT_FALSE(without.contains("product_table"));
  const auto refused = [&](const std::string& variable, const std::string& reason) {
    const auto result = kernels(variable);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.output.find(reason), std::string::npos) << result.output;
    EXPECT_NE(result.output.find("hint: unset INGOT_PRODUCT_TABLE"), std::string::npos) << result.output;
  };
  refused(named + ".none", "INGOT_PRODUCT_TABLE");
  written.machine.processor = "another";
  test::write_text(table, write_product_table(written));
  refused(named, "its processor is 'another'");
  const auto foreign = bench(again);
  EXPECT_EQ(foreign.exit_code, 1);
  EXPECT_NE(foreign.output.find("name another file"), std::string::npos) << foreign.output;
  EXPECT_NE(bench({"zaya-tiny", "--table", table, "--parts=model"}).exit_code, 0) << "one or the other";
}

TEST(BenchGemm, TakesRecipesAndRefusesOthers) {
  const test::TempDir folder;
  test::write_text(folder / "recipe.toml",
                   test::tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
  const std::vector<std::string> quick{"--trials=1", "--seconds=1e-5", "--parts=model", "--largest=2MiB"};
  const auto run = [&](std::vector<std::string> some) {
    some.insert(some.end(), quick.begin(), quick.end());
    return bench(some);
  };
  EXPECT_EQ(run({folder / "recipe.toml", "--vocab=50"}).exit_code, 0);
  EXPECT_EQ(run({folder / "recipe.toml"}).exit_code, 1) << "no vocabulary";
  EXPECT_EQ(run({"gpt-11m"}).exit_code, 1);
  EXPECT_EQ(run({"zaya-tiny", "--vocab=64", "--model.no_such_field=1"}).exit_code, 1);
  EXPECT_NE(run({"zaya-tiny", "--types=f64"}).exit_code, 0);
  EXPECT_NE(run({"zaya-tiny", "--band=0"}).exit_code, 0);
}

}  // namespace ingot::gemm_bench_runs_test
