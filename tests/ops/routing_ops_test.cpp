// Ops that decide which expert takes which token: route, sequence_balance, capacity, assign. Closed forms,
// brute force and ties.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "ops/assign/assign.h"
#include "ops/capacity/capacity.h"
#include "ops/reference.h"
#include "ops/route/route.h"
#include "ops/sequence_balance/sequence_balance.h"
#include "support/op_check.h"
#include "support/sequence_cases.h"

namespace ingot::test::routing_ops_test {

/// `classes`: how many of them have a bias.
OpCase route_case(RouteAttr attr, int64_t rows, int32_t classes, bool load, bool forced,
                  bool earlier = false) {
  OpCase c;
  c.name = fmt::format(
      "route E={} S={} k={} score={} normalize={} groups={}/{} rows={} bias={} load={} forced={} "
      "earlier={}",
      attr.experts, attr.skip_classes, attr.k, static_cast<int>(attr.score), attr.normalize, attr.groups_kept,
      attr.groups, rows, classes, load, forced, earlier);
  if (earlier) attr.load_tokens = rows;
  c.op = &route_op();
  c.attr = c.attr_double = AttrBox(attr);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < rows; ++t)  // every third token has no first choice
    for (int32_t j = 0; j < attr.k; ++j)
      ids.push_back(j == 0 && t % 3 == 2 ? -1 : (static_cast<int32_t>(t) % 2 + j) % attr.experts);
  c.inputs = {
      {.meta = {Shape{rows, attr.experts + attr.skip_classes}, DType::f32},
       .scale = 1.5,
       .row_indexed = true},
      {.meta = {Shape{classes}, DType::f32}, .scale = 0.1, .present = classes > 0},
      {.meta = {Shape{attr.experts}, DType::f32}, .scale = 0.05, .offset = 0.25, .present = load},
      {.meta = {Shape{rows, attr.k}, DType::i32}, .ints = ids, .present = forced, .row_indexed = true},
      {.meta = {Shape{attr.experts + 1}, DType::f32}, .scale = 4, .offset = 8, .present = earlier}};
  c.output_row_indexed = {true, true, false, false, false, false};
  c.finite_differences = rows <= 9;
  return c;
}

TEST(Route, Cases) {
  for (const int64_t rows : {9, 0, 1, 130})
    for (const bool extra : {false, true}) {
      const auto biases = [&](int32_t classes) { return extra ? classes : 0; };
      check_op(route_case({RouteScore::softmax_first, false, 4, 1, 1, 1.0}, rows, biases(4), extra, false));
      check_op(route_case({RouteScore::softmax_first, extra, 4, 1, 1, 1.0}, rows, 5, extra, false));
      check_op(route_case({RouteScore::softmax_first, extra, 19, 2, 3, 1.5}, rows, 21, false, false));
      check_op(route_case({RouteScore::softmax_first, extra, 6, 0, 3, 1.0}, rows, 0, extra, extra));
      check_op(route_case({RouteScore::softmax_last, false, 5, 0, 2, 2.5}, rows, biases(5), false, extra));
      check_op(route_case({RouteScore::softmax_first, true, 37, 0, 8, 1.0}, rows, biases(37), false, false));
      check_op(route_case({RouteScore::sigmoid, extra, 7, 0, 3, 2.5}, rows, biases(7), !extra, false));
      check_op(route_case({RouteScore::sigmoid, !extra, 5, 0, 2, 1.0}, rows, 0, extra, extra));
      check_op(route_case({RouteScore::sigmoid, false, 3, 0, 1, 1.0}, rows, 0, false, false));
      check_op(route_case({RouteScore::sigmoid, true, 24, 0, 6, 2.5, 6, 3}, rows, biases(24), false, false));
      check_op(route_case({RouteScore::sigmoid, true, 6, 0, 4, 2.5, 3, 3}, rows, biases(6), false, false));
      check_op(route_case({RouteScore::softmax_first, extra, 12, 0, 2, 1.0, 4, 2}, rows, biases(12), false,
                          false));
      check_op(
          route_case({RouteScore::softmax_last, false, 12, 0, 4, 1.0, 3, 1}, rows, biases(12), false, false));
      check_op(route_case({RouteScore::softmax_first, true, 6, 0, 2, 1.0}, rows, 0, extra, false, true));
      check_op(route_case({RouteScore::sigmoid, true, 7, 0, 3, 2.5}, rows, 7, extra, false, true));
    }
}

TEST(Route, TiesGoToTheLowestIndexAndWithoutABiasTheSkipClassNeverWins) {
  double logits[] = {1, 1, 1, 9, /*row*/ 0, 2, 2, 9}, probs[2];
  int32_t ids[2];
  float counts[3];
  double aux, z, entropy;
  const RouteAttr attr{RouteScore::softmax_first, false, 3, 1, 1, 1.0};
  const Tensor in[] = {Tensor::of(logits, {2, 4}), {}, {}, {}, {}};
  const Tensor out[] = {Tensor::of(probs, {2, 1}), Tensor::of(ids, {2, 1}), Tensor::of(counts, {3}),
                        Tensor::of(&aux, {1}),     Tensor::of(&z, {1}),     Tensor::of(&entropy, {1})};
  route_op().kernels.back().forward({&attr, in, out, {}, {}});
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 1);
  EXPECT_LT(probs[0], 0.01);
}

/// One row through a kernel of route.
struct Routed {
  std::vector<float> logits, bias, probs, counts;
  std::vector<int32_t> ids;
  Routed(const RouteAttr& attr, std::vector<float> l, std::vector<float> b, bool reference)
      : logits(std::move(l)),
        bias(std::move(b)),
        probs(static_cast<size_t>(attr.k)),
        ids(static_cast<size_t>(attr.k)) {
    counts.resize(static_cast<size_t>(attr.experts));
    std::vector<float> scratch(4 * counts.size() + 8);
    float aux, z, entropy;
    const Tensor in[] = {
        Tensor::of(logits.data(), {1, attr.experts + attr.skip_classes}),
        bias.empty() ? Tensor() : Tensor::of(bias.data(), {static_cast<int64_t>(bias.size())}),
        {},
        {},
        {}};
    const Tensor out[] = {Tensor::of(probs.data(), {1, attr.k}),
                          Tensor::of(ids.data(), {1, attr.k}),
                          Tensor::of(counts.data(), {attr.experts}),
                          Tensor::of(&aux, {1}),
                          Tensor::of(&z, {1}),
                          Tensor::of(&entropy, {1})};
    const auto& kernels = route_op().kernels;
    (reference ? kernels.back() : kernels.front()).forward({&attr, in, out, {}, {}, scratch.data()});
  }
};

/// The definition by brute force: of all sets of groups the one with the largest rating, then the best of its
/// experts.
std::vector<int32_t> best_of_all_group_sets(const RouteAttr& a, const std::vector<float>& score) {
  const int32_t size = a.experts / a.groups, per_group = a.k / a.groups_kept;
  double best = -1e300;
  std::vector<int32_t> members;
  for (uint32_t set = 0; set < 1u << a.groups; ++set) {
    if (__builtin_popcount(set) != a.groups_kept) continue;
    double rating = 0;
    std::vector<int32_t> in;
    for (int32_t g = 0; g < a.groups; ++g) {
      if (!(set >> g & 1u)) continue;
      std::vector<float> mine(score.begin() + g * size, score.begin() + (g + 1) * size);
      std::sort(mine.rbegin(), mine.rend());
      for (int32_t j = 0; j < per_group; ++j) rating += mine[static_cast<size_t>(j)];
      for (int32_t e = g * size; e < (g + 1) * size; ++e) in.push_back(e);
    }
    if (rating > best) best = rating, members = in;
  }
  std::sort(members.begin(), members.end(), [&](int32_t x, int32_t y) {
    return score[static_cast<size_t>(x)] > score[static_cast<size_t>(y)];
  });
  members.resize(static_cast<size_t>(a.k));
  std::sort(members.begin(), members.end());
  return members;
}

TEST(Route, GroupChoiceIsThatOfBruteForce) {
  const Random random(4, RandomPurpose::test);
  for (const RouteAttr& attr : {RouteAttr{RouteScore::sigmoid, true, 16, 0, 4, 1.0, 4, 2},
                                RouteAttr{RouteScore::softmax_last, false, 15, 0, 3, 1.0, 5, 3}})
    for (uint64_t trial = 0; trial < 200; ++trial) {
      std::vector<float> logits, bias, score;
      for (uint64_t e = 0; e < static_cast<uint64_t>(attr.experts); ++e) {
        logits.push_back(static_cast<float>(random.normal(trial * 64 + e)));
        bias.push_back(0.3f * static_cast<float>(random.normal(trial * 64 + 32 + e)));
        const double s =
            attr.score == RouteScore::sigmoid ? 1 / (1 + std::exp(-logits.back())) : logits.back();
        score.push_back(static_cast<float>(s) + bias.back());
      }
      const auto expected = best_of_all_group_sets(attr, score);
      for (const bool reference : {true, false})
        EXPECT_EQ(Routed(attr, logits, bias, reference).ids, expected) << "trial " << trial;
    }
}

TEST(Route, NoNumberLosesAndGroupsOfEqualRatingGoByIndex) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const RouteAttr plain{RouteScore::softmax_last, false, 4, 0, 2, 1.0},
      groups{RouteScore::sigmoid, true, 6, 0, 2, 1.0, 3, 1};
  for (const bool reference : {true, false}) {
    EXPECT_EQ(Routed(plain, {nan, -inf, 1, -inf}, {}, reference).ids, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(Routed(plain, {nan, nan, nan, 0}, {}, reference).ids, (std::vector<int32_t>{0, 3}));
    EXPECT_EQ(Routed(plain, {0.0f, -0.0f, -0.0f, 0.0f}, {}, reference).ids, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(Routed(groups, {1, 1, 1, 1, 1, 1}, {}, reference).ids, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(Routed(groups, {5, 0, 2, 2, 3, 2}, {}, reference).ids, (std::vector<int32_t>{4, 5}));
  }
}

/// p + b over all classes, the skip class's included: it wins where every expert's bias is low enough, and
/// then the token has no expert. transformers' ZayaRouter: argmax, then weight 0.
TEST(Route, TheSkipClassWinsWhereTheBiasesOfTheExpertsAreLow) {
  const RouteAttr attr{RouteScore::softmax_first, false, 3, 1, 1, 1.0};
  for (const bool reference : {true, false}) {
    const Routed skips(attr, {0, 0, 0, 0}, {-1.4f, -1.1f, -1.2f, -1}, reference);
    EXPECT_EQ(skips.ids, std::vector<int32_t>{-1});
    EXPECT_EQ(skips.probs, std::vector<float>{0});
    EXPECT_EQ(skips.counts, std::vector<float>(3));
    const Routed stays(attr, {0, 0, 2, 0}, {-1.4f, -1.1f, -1.2f, -1}, reference);
    EXPECT_EQ(stays.ids, std::vector<int32_t>{2});
    EXPECT_EQ(Routed(attr, {0, 0, 0, 0}, {-1, -1, -1, -1}, reference).ids, std::vector<int32_t>{0})
        << "a tie";
    EXPECT_EQ(Routed(attr, {0, 0, 0, 9}, {-1.4f, -1.1f, -1.2f}, reference).ids, std::vector<int32_t>{1});
  }
}

OpCase sequence_balance_case(const SequenceBalanceAttr& attr, int64_t rows) {
  OpCase c;
  c.name = fmt::format("sequence_balance E={} k={} score={} rows={}", attr.scores.experts, attr.scores.k,
                       static_cast<int>(attr.scores.score), rows);
  c.op = &sequence_balance_op();
  c.attr = c.attr_double = AttrBox(attr);
  c.inputs = {
      {.meta = {Shape{rows, attr.scores.experts + attr.scores.skip_classes}, DType::f32}, .scale = 1.5}};
  c.finite_differences = rows <= 9;
  return c;
}

TEST(SequenceBalance, Cases) {
  const BatchLayout short_documents{9, {{0, 4, 0, nullptr}, {4, 0, 0, nullptr}, {4, 5, 0, nullptr}}};
  const BatchLayout long_documents{150, {{0, 70, 0, nullptr}, {70, 1, 0, nullptr}, {71, 79, 0, nullptr}}};
  const RouteAttr softmax{.experts = 6, .k = 2}, sigmoid{.score = RouteScore::sigmoid, .experts = 5, .k = 3},
      skip{.experts = 4, .skip_classes = 1, .k = 1};
  for (const RouteAttr& scores : {softmax, sigmoid, skip}) {
    check_op(sequence_balance_case({scores, &short_documents}, 9));
    check_op(sequence_balance_case({scores, &long_documents}, 150));
    check_op(sequence_balance_case({scores, nullptr}, 8));
    check_op(sequence_balance_case({scores, nullptr}, 0));
    check_op(sequence_balance_case({scores, nullptr}, 200));
  }
  for (const auto& [documents, list] : {std::pair{&short_documents, 2}, {&long_documents, 16}}) {
    OpCase c = sequence_balance_case({sigmoid, nullptr}, documents->count);
    c.name += fmt::format(" in a list of {}", list);
    c.inputs.push_back(list_of(*documents, list));
    c.output_row_indexed.clear();
    check_op(c);
  }
  BatchLayout many;  // more documents than a launch of the kernels for GPUs takes
  for (int64_t d = 0; d < 300; ++d) {
    many.spans.push_back({many.count, d % 3, 0, nullptr});
    many.count += d % 3;
  }
  for (int64_t d = 0; d < 100; ++d) many.spans.push_back({many.count++, 1, 0, nullptr});
  check_op(sequence_balance_case({softmax, &many}, many.count));
}

// Two documents of equal length give the mean of each alone ([DeepSeek-V3] §2.1.2). Balance gives 1,
// collapse E / k.
TEST(SequenceBalance, IsTheMeanOfTheDocumentsAlone) {
  const Random random(6, RandomPurpose::test);
  const BatchLayout two{10, {{0, 5, 0, nullptr}, {5, 5, 0, nullptr}}};
  const RouteAttr scores{.score = RouteScore::sigmoid, .experts = 4, .k = 2};
  std::vector<double> logits;
  for (uint64_t i = 0; i < 40; ++i) logits.push_back(random.normal(i));
  const auto loss = [&](double* data, int64_t rows, const BatchLayout* documents) {
    const SequenceBalanceAttr attr{scores, documents};
    std::vector<int32_t> ids(static_cast<size_t>(2 * rows));
    double value = 0;
    const Tensor in[] = {Tensor::of(data, {rows, 4})},
                 out[] = {Tensor::of(&value, {1}), Tensor::of(ids.data(), {rows, 2})};
    sequence_balance_op().kernels.back().forward({&attr, in, out, {}, {}});
    return value;
  };
  EXPECT_NEAR(loss(logits.data(), 10, &two),
              (loss(logits.data(), 5, nullptr) + loss(logits.data() + 20, 5, nullptr)) / 2, 1e-14);
  for (uint64_t i = 0; i < 40; ++i) logits[i] = i % 4 < 2 ? 40 : -40;
  EXPECT_NEAR(loss(logits.data(), 10, &two), 2.0, 1e-9);
  for (uint64_t i = 0; i < 40; ++i) logits[i] = (i % 4 < 2) == (i / 4 % 2 == 0) ? 40 : -40;
  EXPECT_NEAR(loss(logits.data(), 10, nullptr), 1.0, 1e-9);
}

// Closed forms of the balance loss ([Switch] §2.2): balance gives 1, collapse on k experts gives E / k.
TEST(Route, BalanceLossClosedForms) {
  for (const bool collapsed : {false, true}) {
    std::vector<double> logits;
    for (int t = 0; t < 8; ++t)
      for (int e = 0; e < 4; ++e) logits.push_back(e == (collapsed ? 0 : t % 4) ? 60.0 : 0.0);
    double probs[8], aux, z, entropy;
    int32_t ids[8];
    float counts[4];
    const RouteAttr attr{RouteScore::softmax_first, false, 4, 0, 1, 1.0};
    const Tensor in[] = {Tensor::of(logits.data(), {8, 4}), {}, {}, {}, {}};
    const Tensor out[] = {Tensor::of(probs, {8, 1}), Tensor::of(ids, {8, 1}), Tensor::of(counts, {4}),
                          Tensor::of(&aux, {1}),     Tensor::of(&z, {1}),     Tensor::of(&entropy, {1})};
    route_op().kernels.back().forward({&attr, in, out, {}, {}});
    EXPECT_NEAR(aux, collapsed ? 4.0 : 1.0, 1e-9);
  }
}

OpCase capacity_case(const CapacityAttr& attr, int64_t rows, int64_t k) {
  OpCase c;
  c.name = fmt::format("capacity E={} factor={} position={} rows={}", attr.experts, attr.factor,
                       name_of(attr.drop), rows);
  c.op = &capacity_op();
  c.attr = c.attr_double = AttrBox(attr);
  std::vector<int32_t> ids;
  for (int64_t s = 0; s < rows * k; ++s)  // crowded experts, absent choices
    ids.push_back(s % 11 == 5 ? -1 : static_cast<int32_t>(s * s % attr.experts));
  c.inputs = {{.meta = {Shape{rows, k}, DType::f32}}, {.meta = {Shape{rows, k}, DType::i32}, .ints = ids}};
  c.finite_differences = rows <= 9;
  return c;
}

TEST(Capacity, Cases) {
  for (const DropRule drop : {DropRule::weight, DropRule::position}) {
    check_op(capacity_case({3, 0.5, drop}, 9, 2));
    check_op(capacity_case({5, 1.0, drop}, 200, 3));
    check_op(capacity_case({4, 8.0, drop}, 7, 2));
    check_op(capacity_case({4, 1.0, drop}, 0, 2));
    OpCase ties = capacity_case({3, 0.7, drop}, 170, 2);
    for (int i = 0; i < 340; ++i)
      ties.inputs[0].values.push_back(i % 5 == 4 ? std::numeric_limits<double>::quiet_NaN()
                                                 : 0.25 * (i % 4) - 0.25);
    check_op(ties);
    check_op(capacity_case({2, 0.5, drop}, 1500, 2));  // more choices than a block looks at together
  }
}

// Known result: 4 tokens with 2 choices, 2 experts of capacity 3 ([Switch] §2.2); ties and NaN come last.
TEST(Capacity, HandCase) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const int32_t nobody[] = {0, 1, 0, 1, 0, -1, 0, -1};
  std::vector<float> probs = {0.5f, 0.5f, 0.9f, 0.1f, 0.5f, 0, nan, 0};
  std::vector<int32_t> ids(nobody, nobody + 8), kept(8);
  std::vector<float> weights(8);
  float dropped = 0;
  const auto run = [&](double factor, DropRule drop, bool reference) {
    const CapacityAttr attr{2, factor, drop};
    const Tensor in[] = {Tensor::of(probs.data(), {4, 2}), Tensor::of(ids.data(), {4, 2})},
                 out[] = {Tensor::of(weights.data(), {4, 2}), Tensor::of(kept.data(), {4, 2}),
                          Tensor::of(&dropped, {1})};
    const auto& kernels = capacity_op().kernels;
    (reference ? kernels.back() : kernels.front()).forward({&attr, in, out, {}, {}});
    return kept;
  };
  EXPECT_EQ(expert_capacity(4, 2, 2, 0.5), 2);
  EXPECT_EQ(expert_capacity(5, 1, 2, 1.0), 3);
  for (const bool reference : {true, false}) {
    EXPECT_EQ(run(0.5, DropRule::weight, reference), (std::vector<int32_t>{0, 1, 0, 1, -1, -1, -1, -1}));
    EXPECT_EQ(dropped, 2);
    EXPECT_EQ(weights[2], 0.9f);  // not renormalised
    EXPECT_EQ(weights[4], 0.0f);
    EXPECT_EQ(run(0.75, DropRule::position, reference), (std::vector<int32_t>{0, 1, 0, 1, 0, -1, -1, -1}));
    EXPECT_EQ(dropped, 1);
    EXPECT_EQ(run(1.0, DropRule::weight, reference), ids);
    EXPECT_EQ(dropped, 0);
  }
}

OpCase assign_case(const AssignAttr& attr, int64_t rows, int64_t experts, double spread) {
  OpCase c;
  c.name = fmt::format("assign rule={} k={} factor={} rows={}", static_cast<int>(attr.rule), attr.k,
                       attr.factor, rows);
  c.op = &assign_op();
  c.attr = c.attr_double = AttrBox(attr);
  c.inputs = {{.meta = {Shape{rows, experts}, DType::f32}, .scale = spread}};
  c.finite_differences = false;
  return c;
}

TEST(Assign, Cases) {
  for (const int64_t rows : {0, 1, 7, 150}) {
    if (rows != 1) {  // all experts of a single token get equal transport, so rounding would choose
      check_op(assign_case({AssignRule::sinkhorn, false, 2, 1}, rows, 5, 1.5));
      check_op(assign_case({AssignRule::sinkhorn, false, 1, 1}, rows, 19, 3));
    }
    check_op(assign_case({AssignRule::expert_choice, false, 2, 1.0}, rows, 6, 1.5));
    check_op(assign_case({AssignRule::expert_choice, true, 1, 1.5}, rows, 4, 1.5));
    check_op(assign_case({AssignRule::expert_choice, true, 2, 40}, rows, 3, 1.5));
  }
  check_op(assign_case({AssignRule::sinkhorn, false, 1, 1}, 150, 6, 12));  // many rounds
  // Ties and NaN; more tokens than a block of the kernels for GPUs looks at together.
  for (const int64_t rows : {170, 2300}) {
    OpCase ties = assign_case({AssignRule::expert_choice, true, 1, 0.7}, rows, 2, 1);
    for (int64_t i = 0; i < 2 * rows; ++i)
      ties.inputs[0].values.push_back(i % 7 == 4 ? std::numeric_limits<double>::quiet_NaN()
                                                 : 0.5 * static_cast<double>(i % 3));
    check_op(ties);
  }
}

/// ids of one kernel of assign.
std::vector<int32_t> assigned(const AssignAttr& attr, std::vector<float> logits, int64_t experts,
                              bool reference) {
  const int64_t rows = static_cast<int64_t>(logits.size()) / experts;
  const int64_t width = attr.rule == AssignRule::sinkhorn ? attr.k : experts;
  std::vector<int32_t> ids(static_cast<size_t>(rows * width));
  std::vector<float> scratch(logits.size() * 2 + 8 * static_cast<size_t>(experts));
  const Tensor in[] = {Tensor::of(logits.data(), {rows, experts})},
               out[] = {Tensor::of(ids.data(), {rows, width})};
  const auto& kernels = assign_op().kernels;
  (reference ? kernels.back() : kernels.front()).forward({&attr, in, out, {}, {}, scratch.data()});
  return ids;
}

// All tokens prefer expert 0, less and less. Top-1 of the logits would crowd it; the transported matrix has
// equal column sums, so each expert gets the tokens that lose least.
TEST(Assign, SinkhornEvensTheLoad) {
  std::vector<float> logits;
  for (int t = 0; t < 8; ++t) logits.insert(logits.end(), {2.0f + 0.25f * static_cast<float>(t), 0});
  for (const bool reference : {true, false})
    EXPECT_EQ(assigned({AssignRule::sinkhorn, false, 1, 1}, logits, 2, reference),
              (std::vector<int32_t>{1, 1, 1, 1, 0, 0, 0, 0}));
}

TEST(Assign, EveryExpertTakesItsCapacity) {
  const Random random(3, RandomPurpose::test);
  std::vector<float> logits;
  for (uint64_t i = 0; i < 30 * 4; ++i) logits.push_back(static_cast<float>(random.normal(i)));
  for (const double factor : {0.5, 1.0, 2.0, 9.0})
    for (const bool reference : {true, false}) {
      const auto ids = assigned({AssignRule::expert_choice, false, 2, factor}, logits, 4, reference);
      std::vector<int64_t> taken(4);
      for (const int32_t e : ids)
        if (e >= 0) ++taken[static_cast<size_t>(e)];
      EXPECT_EQ(taken, std::vector<int64_t>(4, std::min<int64_t>(30, expert_capacity(30, 2, 4, factor))));
    }
}

}  // namespace ingot::test::routing_ops_test
