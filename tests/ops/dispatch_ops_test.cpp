// Ops that send tokens to experts and compute there: permute and unpermute, group_by_rank, grouped_linear.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.h"
#include "ops/group_by_rank/group_by_rank.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/permute/permute.h"
#include "ops/reference.h"
#include "support/op_check.h"

namespace ingot::test::dispatch_ops_test {

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
    for (const auto& [tokens, k, width] :
         {std::tuple<int64_t, int64_t, int64_t>{7, 2, 5}, {0, 1, 4}, {90, 3, 33}, {1100, 2, 3}}) {
      const Map m = make_map(tokens, k, 5, 2);
      for (const PermuteAttr attr : {PermuteAttr{0, 5}, PermuteAttr{1, 2}, PermuteAttr{0, 300}}) {
        if (attr.experts == 300 && tokens > 7) continue;
        OpCase c;
        c.name = fmt::format("permute {}x{} k={} {} experts {}+{}", tokens, width, k, name_of(type),
                             attr.first, attr.experts);
        c.op = &permute_op();
        c.attr = c.attr_double = AttrBox(attr);
        c.inputs = {{.meta = {Shape{tokens, width}, type}, .row_indexed = true},
                    {.meta = {Shape{tokens, k}, DType::f32}, .row_indexed = true},
                    {.meta = {Shape{tokens, k}, DType::i32}, .ints = m.ids, .row_indexed = true}};
        c.finite_differences = tokens <= 7;
        check_op(c);
      }
      if (k <= 2) {  // enough for what comes, less than all choices
        OpCase c;
        c.name = fmt::format("permute {}x{} k={} {} with a capacity", tokens, width, k, name_of(type));
        c.op = &permute_op();
        const auto here =
            std::count_if(m.ids.begin(), m.ids.end(), [](int32_t id) { return id == 1 || id == 2; });
        c.attr = c.attr_double = AttrBox(PermuteAttr{.first = 1, .experts = 2, .capacity = here + 1});
        c.inputs = {{.meta = {Shape{tokens, width}, type}, .row_indexed = true},
                    {.meta = {Shape{tokens, k}, DType::f32}, .row_indexed = true},
                    {.meta = {Shape{tokens, k}, DType::i32}, .ints = m.ids, .row_indexed = true}};
        c.finite_differences = tokens <= 7;
        check_op(c);
      }
      const int64_t most = std::max<int64_t>(90, tokens);  // capacity of one expert: all tokens
      for (const PermuteAttr attr : {PermuteAttr{0, 5, most, false}, PermuteAttr{1, 3, most, true}}) {
        auto ids = m.ids;
        for (size_t s = 0; s < ids.size(); s += 4) ids[s] = -1;
        OpCase c;
        c.name = fmt::format("permute {}x{} k={} {} bound {} pad {}", tokens, width, k, name_of(type),
                             attr.bound, attr.pad);
        c.op = &permute_op();
        c.attr = c.attr_double = AttrBox(attr);
        c.inputs = {{.meta = {Shape{tokens, width}, type}, .row_indexed = true},
                    {.meta = {Shape{tokens, k}, DType::f32}, .row_indexed = true},
                    {.meta = {Shape{tokens, k}, DType::i32}, .ints = ids, .row_indexed = true}};
        c.finite_differences = tokens <= 7 && !attr.pad;
        check_op(c);
      }
      for (const int32_t spare : {0, 2}) {  // unused rows of the capacity
        auto row = m.row, token = m.token;
        const auto end = static_cast<int32_t>(tokens * k) - (tokens > 0 ? spare : 0);
        for (int32_t& r : row) r = r < end ? r : -1;
        std::fill(token.begin() + end, token.end(), -1);
        OpCase back;
        back.name = fmt::format("unpermute {}x{} k={} {} end {}", tokens, width, k, name_of(type), end);
        back.op = &unpermute_op();
        back.attr = AttrBox(UnpermuteAttr{type});
        back.attr_double = AttrBox(UnpermuteAttr{DType::f64});
        back.inputs = {{.meta = {Shape{tokens * k, width}, type}},
                       {.meta = {Shape{tokens, k}, DType::i32}, .ints = row},
                       {.meta = {Shape{tokens * k}, DType::i32}, .ints = token},
                       {.meta = {Shape{2}, DType::i32}, .ints = {0, end}, .present = spare > 0}};
        back.finite_differences = tokens <= 7;
        check_op(back);
      }
    }
}

/// k different experts of each token, ascending; every third token lacks its first choice.
std::vector<int32_t> sparse_choices(int64_t tokens, int64_t k, int32_t experts) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int32_t> own;
    for (int64_t j = 0; j < k; ++j) own.push_back(static_cast<int32_t>((t * t + j) % experts));
    std::sort(own.begin(), own.end());
    if (t % 3 == 2) own[0] = -1;
    ids.insert(ids.end(), own.begin(), own.end());
  }
  return ids;
}

TEST(GroupByRank, WhatIsBeyondTheBoundIsNotSent) {
  const std::vector<int32_t> ids = {0, 1, 0, 5,
                                    1, 4, 0, 3};  // three ranks of two experts, two rows each at most
  const std::vector<float> x = {10, 20, 30, 40}, probs(8, 1);
  HeapArena arena;
  Tape tape(arena, {.record = false});
  tape.begin_segment("test", -1);
  const RankRows r =
      group_by_rank(tape, {3, 6, 1, 0, 2}, tape.leaf(Tensor::of(x.data(), {4, 1})),
                    tape.leaf(Tensor::of(probs.data(), {4, 2})), tape.leaf(Tensor::of(ids.data(), {4, 2})));
  EXPECT_EQ(reference::load(r.rows_SD.tensor()), (reference::Array{10, 20, 40, 20, 30, 0}));
  EXPECT_EQ(reference::load_ints(r.rows_per_rank.tensor()), (std::vector<int32_t>{2, 1, 2}));
  EXPECT_EQ(reference::load_ints(r.row_TM.tensor()), (std::vector<int32_t>{0, -1, 1, 3, -1, 4, -1, 2}));
  EXPECT_EQ(reference::load(r.dropped.tensor()),
            (reference::Array{2}));  // expert 1 of token 2, expert 0 of token 3
}

OpCase group_by_rank_case(const GroupByRankAttr& attr, int64_t k, int64_t tokens, DType type, bool blocks) {
  OpCase c;
  c.name = fmt::format(
      "group_by_rank {} of {} experts from {} on {} ranks, {} copies, bounds {} and {}, {} tokens, "
      "{}, blocks={}",
      k, attr.experts, attr.first, attr.ranks, attr.copies, attr.bound, attr.choices, tokens, name_of(type),
      blocks);
  c.op = &group_by_rank_op();
  c.attr = c.attr_double = AttrBox(attr);
  std::vector<int32_t> ids = sparse_choices(tokens, k, attr.experts);
  for (int32_t& id : ids)
    if (id >= 0) id += attr.first;
  const auto half = static_cast<int32_t>(tokens / 2);
  c.inputs = {{.meta = {Shape{tokens, 5}, type}},
              {.meta = {Shape{tokens, k}, DType::f32}},
              {.meta = {Shape{tokens, k}, DType::i32}, .ints = ids},
              {.meta = {Shape{3}, DType::i32},
               .ints = {half, 0, static_cast<int32_t>(tokens) - half},
               .present = blocks}};
  c.finite_differences = tokens <= 7;
  return c;
}

TEST(GroupByRank, Cases) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t tokens : {0, 7, 90})
      for (const auto& [experts, ranks, copies, k] :
           {std::tuple<int32_t, int32_t, int32_t, int64_t>{6, 3, 1, 2},
            {6, 2, 1, 4},
            {4, 4, 1, 1},
            {6, 6, 2, 2},
            {4, 2, 2, 3}}) {
        check_op(group_by_rank_case({ranks, experts, copies}, k, tokens, type, false));
        check_op(group_by_rank_case({ranks, experts, copies, 9}, k, tokens, type, true));
        check_op(group_by_rank_case({ranks, experts, copies, 0, 2}, k, tokens, type, false));
        check_op(group_by_rank_case({ranks, experts, copies, 0, 0, 7}, k, tokens, type, false));
      }
  for (const auto& [bound, choices] : {std::pair<int64_t, int64_t>{0, 0}, {700, 0}, {0, 1037}, {900, 1500}})
    check_op(group_by_rank_case({2, 6, 1, 0, bound, choices}, 3, 2500, DType::f32, true));
}

TEST(GroupByRank, CountsTheRowsOfEachBlockApart) {
  const std::vector<int32_t> ids = {4, 7, 5, -1, 6, -1},
                             blocks = {2, 0, 3};  // experts 4 to 7 on two ranks; the last is padding
  const std::vector<float> x(6, 1);
  HeapArena arena;
  Tape tape(arena, {.record = false});
  tape.begin_segment("test", -1);
  const Value ones = tape.leaf(Tensor::of(x.data(), {6, 1}));
  const RankRows r = group_by_rank(tape, {2, 4, 1, 4}, ones, ones, tape.leaf(Tensor::of(ids.data(), {6, 1})),
                                   tape.leaf(Tensor::of(blocks.data(), {3})));
  EXPECT_EQ(r.rows_per_rank.shape(), (Shape{2, 3}));
  EXPECT_EQ(reference::load_ints(r.rows_per_rank.tensor()), (std::vector<int32_t>{1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(reference::load_ints(r.token_S.tensor()), (std::vector<int32_t>{0, 2, 1, 4, -1, -1}));
}

TEST(GroupByRank, ATokenGoesOnceToEachRankOfItsExperts) {
  const std::vector<int32_t> ids = {0, 1, -1, 5, 2, 4};  // ranks of two experts: {0}, {2}, {1, 2}
  const std::vector<float> x = {10, 20, 30}, probs = {.1f, .2f, .3f, .4f, .5f, .6f};
  HeapArena arena;
  Tape tape(arena, {.record = false});
  tape.begin_segment("test", -1);
  const RankRows r =
      group_by_rank(tape, {3, 6}, tape.leaf(Tensor::of(x.data(), {3, 1})),
                    tape.leaf(Tensor::of(probs.data(), {3, 2})), tape.leaf(Tensor::of(ids.data(), {3, 2})));
  EXPECT_EQ(reference::load(r.rows_SD.tensor()), (reference::Array{10, 30, 20, 30, 0, 0}));
  EXPECT_EQ(reference::load_ints(r.rows_per_rank.tensor()), (std::vector<int32_t>{1, 1, 2}));
  EXPECT_EQ(reference::load_ints(r.ids_SK.tensor()),
            (std::vector<int32_t>{0, 1, 2, -1, -1, 5, -1, 4, -1, -1, -1, -1}));
  EXPECT_EQ(reference::load_ints(r.token_S.tensor()), (std::vector<int32_t>{0, 2, 1, 2, -1, -1}));
  EXPECT_EQ(reference::load_ints(r.row_TM.tensor()), (std::vector<int32_t>{0, -1, 2, -1, 1, 3}));
}

TEST(GroupedLinear, Cases) {
  for (const Stored& weights : kStored)
    for (const auto& [rows, n_in, n_out] :
         {std::tuple<int64_t, int64_t, int64_t>{9, 5, 3}, {0, 4, 6}, {150, 40, 52}}) {
      const Map m = make_map(rows, 1, 4, 1);
      auto offsets = m.offsets;
      offsets.back() = std::max<int32_t>(offsets[3], offsets[4] - 2);  // the last rows are padding
      const DType type = weights.type;
      OpCase c;
      c.name = fmt::format("grouped_linear {}x{}->{} {}", rows, n_in, n_out, weights.name());
      c.op = &grouped_linear_op();
      c.attr = AttrBox(GroupedLinearAttr{type});
      c.attr_double = AttrBox(GroupedLinearAttr{DType::f64});
      c.inputs = {{.meta = {Shape{rows, n_in}, type}},
                  {.meta = {Shape{4, n_out, n_in}, type, weights.format}, .scale = 0.3},
                  {.meta = {Shape{5}, DType::i32}, .ints = offsets}};
      c.finite_differences = rows <= 9;
      check_op(c);
    }
}

}  // namespace ingot::test::dispatch_ops_test
