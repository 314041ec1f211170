// Small models in double on data, tensor, sequence, context, pipeline and expert parallel thread ranks equal
// one rank. Initial weights have the same bits; loss, routed tokens, router losses, every gradient and the
// gradient norm agree (support/layout_parity.h). First the matrix of all axes, then special cases of each.
#include <gtest/gtest.h>

#include "comm/threads.h"
#include "support/layout_parity.h"

namespace ingot::test::layout_ranks_test {

class Layouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(Layouts, EqualOneRank) {
  const LayoutCase& c = GetParam();
  const OneRank one(c.problem);
  run_ranks(
      Grid(c.grid).ranks(), [&](ThreadRank& self) { expect_layout_equals_one_rank(c, one, self); }, 60);
}

/// A case whose ranks have their share of the batch as one micro-batch.
LayoutCase whole(ParityProblem problem, const GridShape& grid, const RankOptions& options = {}) {
  return {.problem = std::move(problem), .grid = grid, .options = options, .whole_batch = true};
}

const RankOptions kSequenceParallel{.sequence_parallel = true},
    kAllGather{.dispatch = DispatchKind::all_gather};
constexpr ContextForm kForms[] = {ContextForm::heads, ContextForm::gather, ContextForm::ring};

std::vector<LayoutCase> dense_cases() {
  const GridShape dp2{.dp = 2}, tp2{.tp = 2};
  std::vector<LayoutCase> all;
  for (const char* model : {"llama", "llama-window", "gpt2", "zaya-dense"})
    for (const GridShape& grid : {dp2, tp2, GridShape{.dp = 2, .tp = 2}}) {
      all.push_back(whole({.model = model}, grid));
      if (grid.tp == 1) continue;
      for (const bool recompute : {false, true})
        all.push_back(whole({.model = model, .recompute = recompute}, grid, kSequenceParallel));
    }
  for (const char* model : {"mla", "mla-direct", "record", "llama-lora", "mla-lora"})
    for (const RankOptions& options : {RankOptions{}, kSequenceParallel})
      all.push_back(whole({.model = model}, tp2, options));
  for (const RankOptions& options : {RankOptions{}, kSequenceParallel})
    all.push_back(whole({.model = "gpt2"}, {.tp = 4}, options));
  all.push_back(whole({.model = "llama", .mask_last = true}, dp2));
  return all;
}

std::vector<LayoutCase> expert_cases() {
  const GridShape dp2{.dp = 2}, tp2{.tp = 2}, ep2{.dp = 2, .ep = 2};
  std::vector<LayoutCase> all;
  for (const char* model : {"moe-shared", "zaya"}) {
    for (const GridShape& grid :
         {dp2, tp2, ep2, GridShape{.dp = 4, .ep = 2}, GridShape{.dp = 2, .tp = 2, .ep = 2}})
      all.push_back(whole({.model = model}, grid));
    // Experts folded over data and tensor ranks; expert tensor ranks over either.
    for (const GridShape& grid :
         {GridShape{.tp = 2, .etp = 1}, GridShape{.tp = 2, .ep = 2, .etp = 1},
          GridShape{.dp = 2, .tp = 2, .ep = 4, .etp = 1}, GridShape{.tp = 2, .etp = 2},
          GridShape{.dp = 2, .tp = 2, .ep = 2, .etp = 2}})
      for (const bool recompute : {false, true})
        all.push_back(whole({.model = model, .recompute = recompute}, grid, kSequenceParallel));
    all.push_back(whole({.model = model}, {.dp = 2, .etp = 2}));
    all.push_back(whole({.model = model}, {.dp = 4, .ep = 2, .etp = 2}));
  }
  for (const char* model : {"moe-sigmoid", "moe-latent"})
    for (const GridShape& grid : {tp2, ep2}) all.push_back(whole({.model = model}, grid));
  all.push_back(whole({.model = "moe-latent"}, {.tp = 2, .ep = 2, .etp = 1}, kSequenceParallel));
  for (const RankOptions& options : {kAllGather, RankOptions{}})
    for (const bool recompute : {false, true}) {
      all.push_back(whole({.model = "moe", .recompute = recompute}, {.dp = 4, .ep = 4}, options));
      all.push_back(whole({.model = "moe", .recompute = recompute, .starve = true}, ep2, options));
      all.push_back(whole({.model = "moe", .recompute = recompute, .starve = true},
                          {.dp = 4, .ep = 2, .etp = 2}, options));
    }
  return all;
}

/// Nodes of two ranks.
std::vector<LayoutCase> node_cases() {
  const RankOptions nodes{.dispatch = DispatchKind::hierarchical, .node_ranks = 2};
  RankOptions sequence = nodes;
  sequence.sequence_parallel = true;
  std::vector<LayoutCase> all;
  for (const char* model : {"moe", "zaya"})
    for (const bool recompute : {false, true}) {
      const ParityProblem p{.model = model, .recompute = recompute};
      all.push_back(whole(p, {.dp = 4, .ep = 4}, nodes));
      all.push_back(whole(p, {.dp = 4, .ep = 2, .etp = 2}, nodes));
      all.push_back(whole(p, {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, sequence));
      sequence.context = ContextForm::ring;
      all.push_back(whole(p, {.dp = 2, .cp = 2, .tp = 2, .ep = 4, .etp = 2}, sequence));
      all.push_back({.problem = {.model = model, .rows = 8, .recompute = recompute, .starve = true},
                     .grid = {.pp = 2, .dp = 4, .ep = 4},
                     .options = nodes,
                     .schedule = PipelineScheduleKind::zero_bubble});
    }
  return all;
}

/// Ranks without a valid target, without a row for their experts, and both.
std::vector<LayoutCase> starved_cases() {
  std::vector<LayoutCase> all;
  for (const char* model : {"moe", "zaya"})
    for (const bool starve : {false, true})
      for (const ShardLevel level : {ShardLevel::none, ShardLevel::optimizer}) {
        const ParityProblem p{.model = model, .starve = starve, .mask_last = true};
        all.push_back(whole(p, {.dp = 2, .ep = 2}));
        all.push_back(whole(p, {.dp = 4, .ep = 4}));
        all.push_back(whole(p, {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, kSequenceParallel));
        all.push_back(whole(p, {.dp = 2, .cp = 2, .ep = 4}, {.context = ContextForm::ring}));
        for (size_t i = all.size() - 4; i < all.size(); ++i) all[i].options.shards.level = level;
      }
  return all;
}

/// The balance loss over all ranks of the step, whatever they share.
std::vector<LayoutCase> load_cases() {
  std::vector<LayoutCase> all;
  for (const char* model : {"moe", "moe-shared"})
    for (const bool recompute : {false, true}) {
      const ParityProblem p{.model = model, .recompute = recompute, .own_load = true};
      for (const ContextForm form : kForms) all.push_back(whole(p, {.cp = 2}, {.context = form}));
      all.push_back(whole(p, {.dp = 4}));
      all.push_back(whole(p, {.dp = 4, .ep = 4}));
      all.push_back(whole(p, {.dp = 2, .tp = 2}));
      all.push_back(whole(p, {.dp = 2, .cp = 2, .ep = 2}, {.context = ContextForm::ring}));
      all.push_back(whole(p, {.tp = 2, .ep = 2, .etp = 1}, kSequenceParallel));
      all.push_back(whole(p, {.cp = 2, .tp = 2, .ep = 2, .etp = 1},
                          {.sequence_parallel = true, .context = ContextForm::ring}));
    }
  return all;
}

std::vector<LayoutCase> context_cases() {
  std::vector<LayoutCase> all;
  for (const ContextForm form : kForms) {
    for (const char* model : {"llama", "gpt2", "moe", "zaya"})
      for (const bool recompute : {false, true})
        all.push_back(whole({.model = model, .recompute = recompute}, {.cp = 2}, {.context = form}));
    for (const char* model : {"llama-window", "llama-patterns", "record", "mla", "zaya-dense"})
      all.push_back(whole({.model = model}, {.cp = 2}, {.context = form}));
    all.push_back(whole({.model = "gpt2"}, {.cp = 4}, {.context = form}));
    all.push_back(whole({.model = "zaya"}, {.dp = 2, .cp = 2, .ep = 4}, {.context = form}));
    all.push_back(whole({.model = "moe", .mask_last = true}, {.dp = 2, .cp = 2, .ep = 2}, {.context = form}));
  }
  for (const ContextForm form : {ContextForm::gather, ContextForm::ring}) {
    all.push_back(whole({.model = "zaya"}, {.cp = 4}, {.context = form}));
    const RankOptions mixed{.context = form, .context_inner = 2};
    for (const char* model : {"llama", "gpt2", "moe", "zaya"})
      for (const bool recompute : {false, true})
        all.push_back(whole({.model = model, .recompute = recompute}, {.cp = 4}, mixed));
    for (const char* model : {"llama-window", "llama-patterns", "record", "mla", "zaya-dense"})
      all.push_back(whole({.model = model}, {.cp = 4}, mixed));
    all.push_back(whole({.model = "gpt2"}, {.cp = 4, .tp = 2},
                        {.sequence_parallel = true, .context = form, .context_inner = 2}));
    all.push_back(whole({.model = "moe", .mask_last = true}, {.dp = 2, .cp = 4, .ep = 4}, mixed));
    for (const char* model : {"llama", "moe", "zaya"}) {
      all.push_back(whole({.model = model}, {.cp = 2, .tp = 2}, {.context = form}));
      all.push_back(whole({.model = model}, {.cp = 2, .tp = 2, .ep = 4, .etp = 1},
                          {.sequence_parallel = true, .context = form}));
    }
  }
  return all;
}

/// In fp32 with the one rank's routes replayed: one layout of each axis, and mixes.
std::vector<LayoutCase> single_precision_cases() {
  std::vector<LayoutCase> all;
  for (LayoutCase& c : parity_matrix()) {
    if (c.problem.recompute) continue;
    c.problem.precision = Precision::f32();
    all.push_back(std::move(c));
  }
  return all;
}

std::string layout_name(const ::testing::TestParamInfo<LayoutCase>& info) {
  return info.param.name();
}

INSTANTIATE_TEST_SUITE_P(Matrix, Layouts, ::testing::ValuesIn(parity_matrix()), layout_name);
INSTANTIATE_TEST_SUITE_P(Dense, Layouts, ::testing::ValuesIn(dense_cases()), layout_name);
INSTANTIATE_TEST_SUITE_P(ContextRanks, Layouts, ::testing::ValuesIn(context_cases()), layout_name);
INSTANTIATE_TEST_SUITE_P(Experts, Layouts, ::testing::ValuesIn(expert_cases()), layout_name);
INSTANTIATE_TEST_SUITE_P(Nodes, Layouts, ::testing::ValuesIn(node_cases()), layout_name);
INSTANTIATE_TEST_SUITE_P(Load, Layouts, ::testing::ValuesIn(load_cases()), layout_name);
INSTANTIATE_TEST_SUITE_P(Starved, Layouts, ::testing::ValuesIn(starved_cases()), layout_name);
INSTANTIATE_TEST_SUITE_P(SinglePrecision, Layouts, ::testing::ValuesIn(single_precision_cases()),
                         layout_name);

/// The message of the error that building or running the layout ends with.
std::string refusal(const LayoutCase& c) {
  try {
    const OneRank one(c.problem);
    run_ranks(
        Grid(c.grid).ranks(), [&](ThreadRank& self) { expect_layout_equals_one_rank(c, one, self); }, 60);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(LayoutRefusals, NameWhatDoesNotFit) {
  const auto expect = [](const char* model, const GridShape& grid, const RankOptions& options,
                         const char* text) {
    const std::string message = refusal(whole({.model = model, .rows = 8}, grid, options));
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect("zaya", {.tp = 4}, {}, "conv_grouped.weight' [6, 8, 16] cannot be cut into 4 parts");
  expect("llama", {.tp = 4}, {}, "4 query and 2 key-value heads do not divide among 4 tensor ranks");
  expect("moe", {.tp = 2, .etp = 1}, {}, "must hold different tokens");
  const auto nodes = [](int ranks) {
    return RankOptions{.dispatch = DispatchKind::hierarchical, .node_ranks = ranks};
  };
  expect("moe", {.dp = 4, .ep = 4}, nodes(0), "must know which ranks share a node");
  expect("moe", {.dp = 4, .ep = 4}, nodes(3), "an expert group has 3 ranks on one node and 1 on another");
  expect("moe", {.dp = 8, .ep = 2, .etp = 4}, nodes(2),
         "the 4 ranks that share an expert's width do not fit on nodes with 2");
  expect("moe-sigmoid", {.tp = 2}, kSequenceParallel, "needs whole documents");
  expect("moe-sigmoid", {.cp = 2}, {}, "needs whole documents");
  expect("llama", {.cp = 4}, {}, "4 query and 2 key-value heads of a rank do not divide among 4 context");
  expect("gpt2", {.cp = 4}, {.context = ContextForm::ring, .context_inner = 3},
         "4 context ranks do not divide into groups of 3 that exchange heads");
  expect("llama", {.cp = 3}, {}, "sequences of 16 tokens cannot be divided into 6 chunks");
}

}  // namespace ingot::test::layout_ranks_test
