// low_rank: values, gradients, invariance, empty and odd sizes, blocks of other extents.
#include "ops/low_rank/low_rank.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/op_check.h"

namespace ingot::test::low_rank_test {

TEST(LowRank, Cases) {
  for (const auto& [tokens, rank, rows] : {std::tuple<int64_t, int64_t, std::vector<int64_t>>{5, 2, {4}},
                                           {4, 3, {3, 1, 2}},
                                           {0, 2, {3, 3}},
                                           {67, 8, {70, 21, 21}},
                                           {130, 1, {40, 40}}})
    for (const Stored& weights : kStored) {
      const DType type = weights.type;
      const int64_t n = std::accumulate(rows.begin(), rows.end(), int64_t{0}),
                    blocks = static_cast<int64_t>(rows.size());
      OpCase c;
      c.name =
          fmt::format("low_rank {}x{} in {} blocks of rank {} {}", tokens, n, blocks, rank, weights.name());
      c.op = &low_rank_op();
      LowRankAttr attr{1.5, type, static_cast<int32_t>(blocks), {}};
      std::copy(rows.begin(), rows.end(), attr.rows.begin());
      c.attr = AttrBox(attr);
      attr.out = DType::f64;
      c.attr_double = AttrBox(attr);
      c.inputs = {{.meta = {Shape{tokens, n}, type}, .row_indexed = true},
                  {.meta = {Shape{tokens, blocks * rank}, type}, .row_indexed = true},
                  {.meta = {Shape{n, rank}, type, weights.format}, .scale = 0.5}};
      c.output_row_indexed = {true};
      c.finite_differences = tokens <= 5;
      check_op(c);
    }
}

}  // namespace ingot::test::low_rank_test
