// route, permute, unpermute, grouped_linear: values, gradients, balance losses in closed form, empty experts.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/op_check.h"
#include "ops/permute/permute.h"
#include "ops/reference.h"
#include "ops/route/route.h"

namespace ingot::test {
namespace {

OpCase route_case(RouteAttr attr, int64_t rows, bool bias, bool load, bool forced) {
  OpCase c;
  c.name = fmt::format("route E={} S={} k={} score={} normalize={} rows={} bias={} load={}", attr.experts,
                       attr.skip_classes, attr.k, static_cast<int>(attr.score), attr.normalize, rows, bias, load);
  c.op = &route_op();
  c.attr = c.attr_double = AttrBox(attr);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < rows; ++t)
    for (int32_t j = 0; j < attr.k; ++j) ids.push_back((static_cast<int32_t>(t) % 2 + j) % attr.experts);
  c.inputs = {{{Shape{rows, attr.experts + attr.skip_classes}, DType::f32}, 1.5, 0, {}, true, true},
              {{Shape{attr.experts}, DType::f32}, 0.1, 0, {}, bias},
              {{Shape{attr.experts}, DType::f32}, 0.05, 0.25, {}, load},
              {{Shape{rows, attr.k}, DType::i32}, 1, 0, ids, forced, true}};
  c.output_row_indexed = {true, true, false, false, false, false};
  c.finite_differences = rows <= 9;
  return c;
}

TEST(Route, Cases) {
  for (const int64_t rows : {9, 0, 1, 130})
    for (const bool extra : {false, true}) {
      check_op(route_case({RouteScore::softmax_first, false, 4, 1, 1, 1.0}, rows, extra, extra, false));
      check_op(route_case({RouteScore::softmax_first, extra, 6, 0, 3, 1.0}, rows, false, extra, extra));
      check_op(route_case({RouteScore::softmax_last, false, 5, 0, 2, 2.5}, rows, extra, false, extra));
      check_op(route_case({RouteScore::softmax_first, true, 37, 0, 8, 1.0}, rows, extra, false, false));
    }
}

TEST(Route, TiesGoToTheLowestIndexAndTheSkipClassNeverWins) {
  double logits[] = {1, 1, 1, 9, /*row*/ 0, 2, 2, 9}, probs[2];
  int32_t ids[2];
  float counts[3];
  double aux, z, entropy;
  const RouteAttr attr{RouteScore::softmax_first, false, 3, 1, 1, 1.0};
  const Tensor in[] = {Tensor::of(logits, {2, 4}), {}, {}, {}};
  const Tensor out[] = {Tensor::of(probs, {2, 1}),  Tensor::of(ids, {2, 1}), Tensor::of(counts, {3}),
                        Tensor::of(&aux, {1}), Tensor::of(&z, {1}),     Tensor::of(&entropy, {1})};
  route_op().kernels.back().forward({&attr, in, out, {}, {}});
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 1);
  EXPECT_LT(probs[0], 0.01);
}

// Closed forms of spec megatron-moe LB-1: balanced gives 1, collapse on k experts gives E/k.
TEST(Route, BalanceLossClosedForms) {
  for (const bool collapsed : {false, true}) {
    std::vector<double> logits;
    for (int t = 0; t < 8; ++t)
      for (int e = 0; e < 4; ++e) logits.push_back(e == (collapsed ? 0 : t % 4) ? 60.0 : 0.0);
    double probs[8], aux, z, entropy;
    int32_t ids[8];
    float counts[4];
    const RouteAttr attr{RouteScore::softmax_first, false, 4, 0, 1, 1.0};
    const Tensor in[] = {Tensor::of(logits.data(), {8, 4}), {}, {}, {}};
    const Tensor out[] = {Tensor::of(probs, {8, 1}),  Tensor::of(ids, {8, 1}), Tensor::of(counts, {4}),
                          Tensor::of(&aux, {1}), Tensor::of(&z, {1}),     Tensor::of(&entropy, {1})};
    route_op().kernels.back().forward({&attr, in, out, {}, {}});
    EXPECT_NEAR(aux, collapsed ? 4.0 : 1.0, 1e-9);
  }
}

struct Map {
  std::vector<int32_t> ids, offsets, token, row;
};

/// Random ascending choices of k among E for each token; expert `hole` is never chosen.
Map make_map(int64_t tokens, int64_t k, int32_t experts, int32_t hole) {
  Map m;
  const Random random(8, RandomPurpose::test, 2);
  for (int64_t t = 0; t < tokens; ++t) {
    auto e = static_cast<int32_t>(random.below(static_cast<uint64_t>(t), static_cast<uint64_t>(experts)));
    std::vector<int32_t> mine;
    while (static_cast<int64_t>(mine.size()) < k) {
      if (e != hole) mine.push_back(e);
      e = (e + 1) % experts;
    }
    std::sort(mine.begin(), mine.end());
    m.ids.insert(m.ids.end(), mine.begin(), mine.end());
  }
  m.offsets.assign(static_cast<size_t>(experts) + 1, 0);
  for (const int32_t e : m.ids) ++m.offsets[static_cast<size_t>(e) + 1];
  for (size_t e = 1; e < m.offsets.size(); ++e) m.offsets[e] += m.offsets[e - 1];
  m.row.resize(m.ids.size());
  m.token.resize(m.ids.size());
  auto next = m.offsets;
  for (size_t s = 0; s < m.ids.size(); ++s) {
    m.row[s] = next[static_cast<size_t>(m.ids[s])]++;
    m.token[static_cast<size_t>(m.row[s])] = static_cast<int32_t>(s) / static_cast<int32_t>(k);
  }
  return m;
}

TEST(Permute, ThereAndBack) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [tokens, k, width] : {std::tuple<int64_t, int64_t, int64_t>{7, 2, 5}, {0, 1, 4}, {90, 3, 33}}) {
      const Map m = make_map(tokens, k, 5, 2);
      for (const PermuteAttr attr : {PermuteAttr{0, 5}, PermuteAttr{1, 2}}) {
        OpCase c;
        c.name = fmt::format("permute {}x{} k={} {} experts {}+{}", tokens, width, k, name_of(type), attr.first,
                             attr.experts);
        c.op = &permute_op();
        c.attr = c.attr_double = AttrBox(attr);
        c.inputs = {{{Shape{tokens, width}, type}, 1, 0, {}, true, true},
                    {{Shape{tokens, k}, DType::f32}, 1, 0, {}, true, true},
                    {{Shape{tokens, k}, DType::i32}, 1, 0, m.ids, true, true}};
        c.finite_differences = tokens <= 7;
        check_op(c);
      }
      OpCase back;
      back.name = fmt::format("unpermute {}x{} k={} {}", tokens, width, k, name_of(type));
      back.op = &unpermute_op();
      back.attr = AttrBox(UnpermuteAttr{type});
      back.attr_double = AttrBox(UnpermuteAttr{DType::f64});
      back.inputs = {{{Shape{tokens * k, width}, type}},
                     {{Shape{tokens, k}, DType::i32}, 1, 0, m.row},
                     {{Shape{tokens * k}, DType::i32}, 1, 0, m.token}};
      back.finite_differences = tokens <= 7;
      check_op(back);
    }
}

TEST(GroupedLinear, Cases) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [rows, n_in, n_out] :
         {std::tuple<int64_t, int64_t, int64_t>{9, 5, 3}, {0, 4, 6}, {150, 40, 52}}) {
      const Map m = make_map(rows, 1, 4, 1);
      auto offsets = m.offsets;
      offsets.back() = std::max<int32_t>(offsets[3], offsets[4] - 2);  // the last rows are padding
      OpCase c;
      c.name = fmt::format("grouped_linear {}x{}->{} {}", rows, n_in, n_out, name_of(type));
      c.op = &grouped_linear_op();
      c.attr = AttrBox(GroupedLinearAttr{type});
      c.attr_double = AttrBox(GroupedLinearAttr{DType::f64});
      c.inputs = {{{Shape{rows, n_in}, type}}, {{Shape{4, n_out, n_in}, type}, 0.3},
                  {{Shape{5}, DType::i32}, 1, 0, offsets}};
      c.finite_differences = rows <= 9;
      check_op(c);
    }
}

}  // namespace
}  // namespace ingot::test
