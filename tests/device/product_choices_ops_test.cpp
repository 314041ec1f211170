// device/gemm/product_choices: every way to make a product has the bits of the naive loop.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "device/gemm/product_table.h"
#include "device/simd/isa.h"
#include "support/product_operands.h"

namespace ingot::product_choices_ops_test {

using Bytes = std::vector<std::byte>;

class ProductChoiceBits : public ::testing::Test {
 protected:
  ~ProductChoiceBits() override {
    force_isa(isa_);
    set_num_threads(threads_);
  }

  /// Every way has the bits of `expected`, on every instruction set, with one and two threads.
  static void check_ways(ProductKey key, test::ProductOperands& operands, const Bytes& expected,
                         bool generic) {
    for (const Isa isa : kEveryIsa) {
      if (!isa_available(isa) || (isa == Isa::generic && !generic)) continue;
      force_isa(isa);
      for (const int threads : {1, 2}) {
        set_num_threads(threads);
        key.threads = threads;
        ASSERT_EQ(operands.product(), expected) << text_of(key) << isa_name(isa);
        int ways = 0;
        for (ProductChoice way : ways_to_make(key)) {
          std::vector<ProductChoice> choices = with_each_kc(key, way);
          for (const std::optional<int64_t> kc : {std::optional<int64_t>(), {16}, {48}}) {
            way.kc = kc;
            choices.push_back(way);
          }
          for (const ProductChoice& choice : choices) {
            ProductChoices one;
            one.add(key, choice);
            const ScopedProductChoices installed(one);
            ASSERT_TRUE(operands.product() == expected)
                << text_of(key) << ": " << text_of(choice) << isa_name(isa);
            ASSERT_EQ(one.found(), 1) << text_of(key);
            ++ways;
          }
        }
        ASSERT_GE(ways, 4) << text_of(key);
      }
    }
  }

  using E = ElementType;
  static constexpr std::tuple<E, bool, bool> kResults[] = {
      {E::f32, false, true}, {E::f32, true, false}, {E::bf16, false, true}};  // accumulate, bias

 private:
  Isa isa_ = active_isa();
  int threads_ = num_threads();
};

TEST_F(ProductChoiceBits, AreThoseOfTheNaiveLoop) {
  for (const auto& [m, n, k] : {std::tuple{1, 1, 1}, {13, 61, 37}, {61, 13, 38}, {9, 50, 530}, {130, 50, 66}})
    for (const GemmForm form : kEveryGemmForm)
      for (const auto& [a, b] : {std::pair{E::f32, E::f32},
                                 {E::bf16, E::bf16},
                                 {E::bf16, E::rounded},
                                 {E::f32, E::bf16},
                                 {E::bf16, E::f32}})
        for (const auto& [c, accumulate, bias] : kResults) {
          const ProductKey key{m, n, k, form, a, b, c, accumulate};
          test::ProductOperands operands(key, bias);
          check_ways(key, operands, operands.naive_product(), m < 100);
        }
}

/// Blocks of each thread, several phases, tasks of several micro-panels: as the rule.
TEST_F(ProductChoiceBits, OfLargeProductsAreThoseOfTheRule) {
  for (const auto& [m, n, k] : {std::tuple{1030, 200, 70}, {70, 1600, 64}, {150, 72, 4200}})
    for (const GemmForm form : kEveryGemmForm)
      for (const auto& [a, b] : {std::pair{E::f32, E::f32}, {E::bf16, E::bf16}, {E::bf16, E::rounded}})
        for (const auto& [c, accumulate, bias] : kResults) {
          const ProductKey key{m, n, k, form, a, b, c, accumulate};
          test::ProductOperands operands(key, bias);
          check_ways(key, operands, operands.product(), false);
        }
}

}  // namespace ingot::product_choices_ops_test
