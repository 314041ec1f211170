// device/gemm/product_table: tables are followed for their products where they were measured, and refused
// elsewhere and where damaged.
#include "device/gemm/product_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "device/gemm/gemm_problem.h"
#include "device/memory/scratch.h"
#include "support/corpus.h"
#include "support/product_operands.h"
#include "support/support.h"

#define LLVMFuzzerTestOneInput product_table_input
#include "fuzz/product_table_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::product_table_test {

ProductTable table_here() {
  ProductTable table = empty_product_table();
  ProductTableRow row;
  row.product = {.m = 40, .n = 96, .k = 128, .form = GemmForm::nt, .threads = num_threads()};
  row.choice = {.transposed = true, .in_place = false, .kc = 64};
  table.rows.push_back(row);
  row.product.form = GemmForm::tn, row.product.accumulate = true;
  row.choice = {.own_blocks = true};
  table.rows.push_back(row);
  return table;
}

TEST(ProductTable, ChoosesForItsProductsAlone) {
  ProductChoices choices;
  add_to(choices, table_here());
  const ProductKey key = table_here().rows[0].product;
  const ProductChoice choice = table_here().rows[0].choice;
  const GemmArgs args = test::ProductOperands(key, false).args();
  EXPECT_EQ(choices.of(args), choice);
  EXPECT_EQ(choices.found(), 1);
  const auto other = [&](auto&& change) {
    GemmArgs changed = args;
    change(changed);
    return choices.of(changed) == ProductChoice{};
  };
  EXPECT_TRUE(other([](GemmArgs& g) { g.m = 41; }));
  EXPECT_TRUE(other([](GemmArgs& g) { g.lda += 1; })) << "gaps between rows";
  EXPECT_TRUE(other([](GemmArgs& g) { g.ldb += 1; }));
  EXPECT_TRUE(other([](GemmArgs& g) { g.ldc += 1; }));
  EXPECT_TRUE(other([](GemmArgs& g) { g.accumulate = true; }));
  EXPECT_TRUE(other([](GemmArgs& g) { g.round_b = true; }));
  EXPECT_TRUE(other([](GemmArgs& g) { g.a_type = DType::bf16; }));
  EXPECT_TRUE(other([](GemmArgs& g) { g.c_type = DType::bf16; }));
  EXPECT_TRUE(other([](GemmArgs& g) { g.b_transposed = false, g.ldb = g.n; }));
  EXPECT_TRUE(other([](GemmArgs& g) { g.a_transposed = true, g.lda = g.m; })) << "both transposed";
  const std::vector<float> weights(96 * 128);
  const PackedWeights packed({.b = weights.data(), .k = 128, .n = 96, .ldb = 128}, DType::f32);
  EXPECT_TRUE(other([&](GemmArgs& g) { g.packed = &packed; }));
  const int before = num_threads();
  set_num_threads(before + 1);
  EXPECT_TRUE(other([](GemmArgs&) {})) << "another number of threads";
  set_num_threads(before);
}

/// What gemm() leaves in the calling thread's scratch tells which way it took.
TEST(ProductTable, IsFollowed) {
  constexpr int64_t kRegion = 2 << 20, kWords = 2 * kRegion;  // packed A of one thread, and of two
  constexpr float kUntouched = 12345;
  const int before = num_threads();
  const auto touched = [&](ScratchSlot slot, int threads, ProductKey key, const ProductChoice& choice) {
    set_num_threads(threads);
    key.threads = threads;
    ProductChoices one;
    one.add(key, choice);
    const ScopedProductChoices installed(one);
    test::ProductOperands operands(key, false);
    auto* const words = static_cast<float*>(scratch(slot, kWords * 4));
    std::fill_n(words, kWords, kUntouched);
    operands.product();
    return kRegion - std::count(words, words + kRegion, kUntouched);
  };
  const ProductKey key{.m = 1600, .n = 100, .k = 128, .form = GemmForm::nn};
  EXPECT_EQ(touched(ScratchSlot::gemm_a, 1, key, {.in_place = true}), 0);
  EXPECT_GE(touched(ScratchSlot::gemm_a, 1, key, {.transposed = false, .in_place = false}), 1600 * 128);
  EXPECT_EQ(touched(ScratchSlot::gemm_c_rows, 1, key, {.transposed = false}), 0);
  EXPECT_GT(touched(ScratchSlot::gemm_c_rows, 1, key, {.transposed = true}), 0);
  const auto of_kc = [&](int64_t kc) {
    return touched(ScratchSlot::gemm_b, 1, key, {.transposed = false, .in_place = true, .kc = kc});
  };
  EXPECT_LT(2 * of_kc(16), of_kc(128));
  // Two blocks are in the regions of both threads; a single one in that of its middle, the second.
  const auto first_region = [&](bool own) {
    return touched(ScratchSlot::gemm_a, 2, key, {.transposed = false, .in_place = false, .own_blocks = own});
  };
  EXPECT_GE(first_region(true), 1600 * 128 / 2);
  EXPECT_EQ(first_region(false), 0);
  set_num_threads(before);
}

/// What gemm() asks of a choice.
TEST(ProductTable, DecidesInPlaceOfTheRule) {
  constexpr int64_t kMr = 8, kWays = 12;
  GemmProblem p;
  p.m = 40, p.n = 96, p.depth = 128;
  p.a = {nullptr, DType::f32, 128, 1}, p.b = {nullptr, DType::f32, 128, 1};
  EXPECT_TRUE(in_place(p, kMr, kWays, {}));
  EXPECT_FALSE(in_place(p, kMr, kWays, {.in_place = false}));
  const bool rule = is_by_transpose(p, p.m, p.n, p.depth, kMr, {});
  EXPECT_EQ(is_by_transpose(p, p.m, p.n, p.depth, kMr, {.transposed = !rule}), !rule);
  p.b.round = true;
  EXPECT_FALSE(is_by_transpose(p, p.m, p.n, p.depth, kMr, {.transposed = true})) << "A is not rounded";
  p.a.type = DType::bf16;
  EXPECT_FALSE(in_place(p, kMr, kWays, {.in_place = true})) << "bf16 without a pair must be packed";
}

TEST(ProductTable, IsReadAsItWasWritten) {
  const ProductTable table = table_here();
  const ProductTable again = parse_product_table(write_product_table(table), "table.toml");
  EXPECT_NO_THROW(require_this_machine(again, "table.toml"));
  EXPECT_EQ(again.machine, table.machine);
  ASSERT_EQ(again.rows.size(), table.rows.size());
  for (size_t i = 0; i < table.rows.size(); ++i) {
    EXPECT_EQ(again.rows[i].product, table.rows[i].product);
    EXPECT_EQ(again.rows[i].choice, table.rows[i].choice);
  }
  EXPECT_TRUE(parse_product_table(write_product_table(empty_product_table()), "empty").rows.empty());
}

TEST(ProductTable, OfAnotherMachineIsRefused) {
  for (std::string ProductMachine::*fact :
       {&ProductMachine::processor, &ProductMachine::instruction_set, &ProductMachine::caches}) {
    ProductTable table = table_here();
    table.machine.*fact = "another";
    const std::string message = test::message_of([&] { require_this_machine(table, "table.toml"); });
    for (const std::string& text : {std::string("'table.toml'"), std::string("is 'another', here '"),
                                    empty_product_table().machine.*fact, std::string("--table FILE")})
      EXPECT_NE(message.find(text), std::string::npos) << text << " in " << message;
  }
}

TEST(ProductTable, DamagedIsRefusedByName) {
  const std::string good = write_product_table(table_here());
  const auto refused = [&](const std::string& before, const std::string& after, const std::string& named) {
    std::string text = good;
    const size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos) << before;
    text.replace(at, before.size(), after);
    const std::string message = test::message_of([&] { parse_product_table(text, "table.toml"); });
    EXPECT_NE(message.find("table.toml"), std::string::npos) << message;
    EXPECT_NE(message.find(named), std::string::npos) << named << " in " << message;
  };
  refused("format = 1", "format = 2", "is 2, expected 1");
  refused("m = 40", "m = 0", "at least 1");
  refused("m = 40", "m = 1e30", "m");
  refused("m = 40", "m = \"forty\"", "an integer");
  refused("m = 40\n", "", "m, n and k");
  refused("threads = ", "thraeds = ", "threads");
  refused("form = \"NT\"", "form = \"TT\"", "NT");
  refused("a = \"f32\"", "a = \"rounded\"", "only b");
  refused("c = \"f32\"\naccumulate = false", "c = \"bf16\"\naccumulate = true", "c is not f32");
  refused("kc = 64", "kc = 8", "at least 16");
  refused("own_blocks = true", "", "chooses nothing");
  refused("[[rows]]", "[[rows]", "table.toml");
  std::string twice = good + good.substr(good.find("[[rows]]"));
  EXPECT_NE(test::message_of([&] { parse_product_table(twice, "t"); }).find("is of the product of rows.0"),
            std::string::npos);
}

TEST(ProductTable, AnyTextIsATableOrRefused) {
  EXPECT_GE(test::replay_corpus("product_table", product_table_input, 200), 2);
}

}  // namespace ingot::product_table_test
