// Plans of ranks: the published memory and work of DeepSeek-V3 and Qwen3-235B to a fraction of a percent,
// ranks that are alike, and plans that equal what started ranks hold, to the byte.
#include "plan/rank_plan.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "comm/threads.h"
#include "plan/op_program.h"
#include "plan/run_plan.h"
#include "support/layout_parity.h"
#include "support/small_cluster.h"
#include "support/support.h"

namespace ingot::test::rank_plan_test {

constexpr double kGiB = 1.0 / (1 << 30);

Recipe source(const char* name, const std::vector<std::string>& overrides = {}) {
  return load_recipe(std::string(INGOT_SOURCE_DIR) + "/recipes/sources/" + name + ".toml", overrides);
}

double per_token(const RunPlan& plan) {
  return plan.model_flops / static_cast<double>(plan.tokens());
}

/// Weights and gradients, masters and moments of DeepSeek-V3's stages with its prediction layer, counted by
/// hand from its shapes: bf16 copies and fp32 gradients; 12 bytes of state over 64 ranks, of experts over
/// one.
TEST(RankPlan, DeepSeekHasTheStateOfItsShapes) {
  const RunPlan plan = plan_ranks(
      source("deepseek-v3", {"--phases.0.batch=1024", "--model.moe.router_precision=bf16"}), {256, 1});
  const double gradients[] = {44.7, 36.6, 36.6, 42.9}, state[] = {26.6, 32.1, 32.1, 28.5};
  int ranks = 0;
  for (const RankClass& c : plan.classes) {
    const RankMemory& m = c.plan.memory;
    const auto stage = static_cast<size_t>(c.plan.stage);
    // Vectors have no copy: their masters are their weights.
    const double sum = static_cast<double>(m.state()) * kGiB;
    EXPECT_NEAR(sum, gradients[stage] + state[stage], 0.002 * sum) << stage;
    EXPECT_NEAR(static_cast<double>(m.copies + m.gradients) * kGiB, gradients[stage], 0.0025 * sum) << stage;
    ranks += static_cast<int>(c.ranks.size());
  }
  EXPECT_EQ(ranks, 256);
}

/// Activations that a layer of experts keeps for a micro-batch of 4,096 tokens: table 3's 2,236 MiB without
/// the output of experts (memory-efficient permutation), and what differs here.
TEST(RankPlan, ALayerOfDeepSeekKeepsThePublishedActivationsButForItsStreams) {
  const auto kept = [](int ranks, int64_t layers) {
    std::vector<std::string> fields = {"--parallel.pipeline=1",
                                       "--parallel.layout=",
                                       "--parallel.schedule=1f1b",
                                       "--parallel.shard=none",
                                       "--model.mtp.depths=0",
                                       fmt::format("--parallel.expert={}", ranks),
                                       fmt::format("--phases.0.batch={}", ranks),
                                       fmt::format("--model.layers={}", layers)};
    if (ranks == 1) fields.emplace_back("--parallel.dispatch_capacity=0");
    const RankPlan plan = plan_rank(PaperRank(source("deepseek-v3", fields), {ranks, 1}, 0));
    return static_cast<double>(plan.slab_by_segment.at("activation")) / (1 << 20);
  };
  constexpr double published = 2236 - 448;
  // Two streams in f32 in place of bf16; a token's experts by index, not as a dense row of weights and one of
  // int64; the rotated key that all heads share, and statistics of the latents' norms.
  constexpr double streams = 2 * 56, routing = -(2 + 8) + 4.1 + 0.25, rotated_key = 0.5;
  for (const int ranks : {1, 64}) {
    const double layer = (kept(ranks, 8) - kept(ranks, 4)) / 4;
    EXPECT_NEAR(layer, published, 0.1 * published) << ranks;
    EXPECT_NEAR(layer, published + streams + routing + rotated_key, ranks == 1 ? 0.5 : 1.5)
        << ranks << ": where ranks exchange rows, also their order";
  }
}

/// Table 11 of the report: TFLOP/s over tokens/s of its nine rows, some of which are rounded more than
/// others.
TEST(RankPlan, WorkATokenIsThePublishedOne) {
  const double deepseek = per_token(plan_ranks(source("deepseek-v3", {"--phases.0.batch=1024"}), {256, 1})),
               qwen = per_token(plan_ranks(source("qwen3-235b", {"--phases.0.batch=512"}), {256, 1}));
  const double at_128k = per_token(plan_ranks(
      source("qwen3-235b", {"--model.context=131072", "--phases.0.sequence=131072", "--phases.0.batch=8",
                            "--parallel.context=4", "--parallel.context_form=gather", "--parallel.tensor=4",
                            "--parallel.sequence=true"}),
      {128, 1}));
  for (const double row : {260.68e9, 260.70e9, 259.85e9, 260.62e9}) EXPECT_NEAR(deepseek, row, 0.015 * row);
  for (const double row : {147.96e9, 147.94e9, 147.06e9, 150.09e9}) EXPECT_NEAR(qwen, row, 0.015 * row);
  EXPECT_NEAR(at_128k, 739.07e9, 0.015 * 739.07e9);
}

/// Attention takes 69 % of DeepSeek-V3's work at 64K.
TEST(RankPlan, AttentionsShareAtLongSequencesIsThePublishedOne) {
  const auto work = [](const char* sequence) {
    return per_token(plan_ranks(source("deepseek-v3", {"--phases.0.batch=256", sequence}), {256, 1}));
  };
  const double at_4k = work("--phases.0.sequence=4096"), at_64k = work("--phases.0.sequence=65536");
  const double core = (at_64k - at_4k) * 16 / 15;  // it grows with the length, the rest does not
  EXPECT_NEAR(core / at_64k, 0.69, 0.01);
}

/// The products of a rank that shares its experts with 63 others are those of one that has all of them.
TEST(RankPlan, ExpertsOverRanksMakeTheSameWork) {
  const auto products = [](const std::vector<std::string>& experts) {
    std::vector<std::string> all = {
        "--phases.0.batch=64",      "--parallel.layout=",    "--parallel.pipeline=1",
        "--parallel.schedule=1f1b", "--parallel.shard=none", "--model.layers=6"};
    all.insert(all.end(), experts.begin(), experts.end());
    return plan_rank(PaperRank(source("deepseek-v3", all), {64, 1}, 9)).work.products;
  };
  const double alone = products({"--parallel.expert=1", "--parallel.dispatch_capacity=0"}),
               shared = products({});
  EXPECT_NEAR(shared, alone, 0.02 * alone);
}

/// Even routing's rows times the imbalance, not the capacity for the worst.
TEST(RankPlan, ImbalanceIsPaidByTheExpertsAlone) {
  const std::vector<std::string> small = {"--phases.0.batch=256", "--parallel.dispatch_capacity=2"};
  const auto work = [&](double imbalance) {
    const PaperRank rank(source("deepseek-v3", small), {256, imbalance}, 70);
    return plan_rank(rank).work;
  };
  const RankWork even = work(1), uneven = work(1.5);
  EXPECT_GT(uneven.products, 1.1 * even.products);
  EXPECT_LT(uneven.products, 1.5 * even.products);
  EXPECT_EQ(uneven.attention, even.attention);
}

Recipe small(const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {"--model.preset=moe-small", "--model.vocab=512",
                                  "--model.layers=4",         "--run.precision=bf16",
                                  "--phases.0.batch=16",      "--phases.0.sequence=64",
                                  "--phases.0.micro_batch=1", "--optimizer.matrices=adamw"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return recipe_from_tree(parse_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n", "test"), all);
}

/// Documents of 16 in sequences of 64: a token sees 8.5 tokens in the mean where it saw 32.5.
TEST(RankPlan, DocumentsCutAttentionAlone) {
  const auto plan = [](int64_t document) { return plan_rank(PaperRank(small({}), {1, 1, document}, 0)); };
  const RankPlan whole = plan(0), cut = plan(16);
  EXPECT_NEAR(cut.work.attention / whole.work.attention, 17.0 / 65, 1e-12);
  EXPECT_EQ(cut.work.products, whole.work.products);
  EXPECT_EQ(cut.memory.total(), whole.memory.total());
  EXPECT_EQ(plan(64).work.attention, whole.work.attention);
  // Documents of 50 and 14 tokens, of which tokens see 42.1 in the mean; of 21, 21, 21 and 1.
  EXPECT_NEAR(plan(42).work.attention / whole.work.attention, (50 * 51 + 14 * 15) / (64.0 * 65), 1e-12);
  EXPECT_NEAR(plan(21).work.attention / whole.work.attention, (3 * 21 * 22 + 2) / (64.0 * 65), 1e-12);
}

const std::vector<std::vector<std::string>> kLayouts = {
    {"--parallel.expert=2", "--parallel.shard=optimizer"},
    {"--parallel.shard=full"},
    {"--parallel.tensor=2", "--parallel.sequence=true", "--parallel.expert=2"},
    {"--parallel.pipeline=2", "--parallel.shard=optimizer"},
    {"--parallel.pipeline=2", "--parallel.chunks=2", "--parallel.schedule=interleaved", "--parallel.expert=2",
     "--parallel.dispatch_capacity=1.5"},
    {"--parallel.context=2", "--parallel.context_form=gather", "--memory.recompute=[\"activation\"]"},
    {"--parallel.tensor=2", "--parallel.pipeline=2", "--memory.fp8=[\"activation\", \"add_norm.h\"]"},
};

/// Of every rank of the layout: started, it holds what was planned.
void expect_started_as_planned(const Recipe& recipe, int ranks_of_all, const std::string& name) {
  run_ranks(ranks_of_all, [&](ThreadRank& world) {
    const RunRanks ranks(recipe, &world);
    const TrainEngine engine(ranks.fitted(recipe), ranks);
    const Preflight started = plan_engine(engine, 0, 0);
    const RankPlan plan = plan_rank(PaperRank(recipe, {ranks_of_all, 1}, world.rank()));
    const std::string where = name + fmt::format(", rank {}", world.rank());
    EXPECT_EQ(plan.memory.masters + plan.memory.copies, engine.model().bytes()) << where;
    EXPECT_EQ(plan.memory.gradients, engine.gradients().bytes()) << where;
    EXPECT_EQ(plan.memory.moments, engine.optimizer().state_bytes()) << where;
    EXPECT_EQ(plan.memory.in_flight, started.transient_bytes) << where;
    EXPECT_EQ(plan.memory.activations, started.activation_bytes()) << where;
    EXPECT_GT(plan.memory.activations, 0) << where;
  });
}

TEST(RankPlan, StartedRanksHoldWhatIsPlanned) {
  for (const std::vector<std::string>& layout : kLayouts)
    expect_started_as_planned(small(layout), 4, layout.front());
}

/// The layout as keys of a recipe for a small model of its family.
std::vector<std::string> keys_of(const LayoutCase& c) {
  const std::string model = c.problem.model;
  const bool experts = model != "llama" && model != "gpt2";
  std::vector<std::string> keys = {"--model.preset=" + std::string(model == "llama"  ? "llama-small"
                                                                   : model == "gpt2" ? "gpt2"
                                                                   : model == "moe"  ? "moe-small"
                                                                                     : "zaya-mini"),
                                   "--model.layers=4",
                                   "--model.vocab=64",
                                   "--model.width=64",
                                   "--model.heads=8",
                                   "--model.head_width=8",
                                   "--phases.0.sequence=32"};
  if (model != "zaya") keys.push_back("--model.kv_heads=4");
  const auto set = [&](const char* key, const auto& value, const auto& otherwise) {
    if (value != otherwise) keys.push_back(fmt::format("--parallel.{}={}", key, value));
  };
  const GridShape& g = c.grid;
  set("pipeline", g.pp, 1), set("context", g.cp, 1), set("tensor", g.tp, 1), set("expert", g.ep, 1);
  if (experts) set("expert_tensor", g.etp > 0 ? g.etp : g.tp, 1);
  set("chunks", c.chunks, 1), set("context_inner", c.options.context_inner, 1);
  set("sequence", c.options.sequence_parallel || (experts && g.tp > 1), false);
  set("context_form", std::string(name_of(c.options.context)), "heads");
  set("schedule", std::string(name_of(c.schedule)), "1f1b");
  set("shard", std::string(name_of(c.options.shards.level)), "none");
  if (c.problem.recompute) keys.push_back("--memory.recompute=[\"activation\"]");
  return keys;
}

/// All layouts in which many ranks are compared with one.
TEST(RankPlan, EveryLayoutOfTheParityTestsHoldsWhatIsPlanned) {
  using enum PipelineScheduleKind;
  std::vector<LayoutCase> all = parity_matrix();
  for (const PipelineScheduleKind kind : {one_forward_one_backward, zero_bubble, merged})
    for (const char* model : {"llama", "gpt2", "moe", "zaya"})
      for (const GridShape& grid : {GridShape{.pp = 2}, {.pp = 4}, {.pp = 2, .dp = 2, .tp = 2}})
        all.push_back({.problem = {.model = model, .layers = 4, .rows = 8}, .grid = grid, .schedule = kind});
  std::set<std::vector<std::string>> seen;
  for (const LayoutCase& c : all) {
    const std::vector<std::string> keys = keys_of(c);
    if (seen.insert(keys).second)
      expect_started_as_planned(small(keys), Grid(c.grid).ranks(), fmt::format("{}", fmt::join(keys, " ")));
  }
  EXPECT_GE(seen.size(), 100u);
}

TEST(RankPlan, RoundingIsWorkOfThePassThatRounds) {
  const auto recorded = [](const std::vector<std::string>& fields) {
    const PaperRank rank(small(fields), {4, 1}, 0);
    return record_program(rank, 0, small_cluster("80GB")).chunks.at(0);
  };
  const auto count = [](const PassProgram& pass, const std::string& op) {
    return std::count_if(pass.begin(), pass.end(),
                         [&](const PassStep& s) { return s.op == op && s.bytes > 0 && s.flops == 0; });
  };
  const StagePrograms in_fp8 = recorded({"--memory.fp8=[\"activation\", \"add_norm.h\"]"});
  const auto rounded = count(in_fp8[0], "quantize");
  EXPECT_GT(rounded, 0);
  EXPECT_EQ(count(in_fp8[1], "dequantize"), rounded);
  EXPECT_EQ(count(in_fp8[1], "quantize") + count(in_fp8[0], "dequantize"), 0);
  EXPECT_EQ(count(recorded({})[0], "quantize"), 0);
}

TEST(RankPlan, RanksOfAClassPlanAlike) {
  for (const std::vector<std::string>& layout : kLayouts) {
    const Recipe recipe = small(layout);
    for (const std::vector<int>& ranks : rank_classes(recipe, {8, 1})) {
      const RankPlan first = plan_rank(PaperRank(recipe, {8, 1}, ranks.front()));
      for (const int rank : ranks) {
        const RankPlan plan = plan_rank(PaperRank(recipe, {8, 1}, rank));
        EXPECT_EQ(plan.memory.total(), first.memory.total()) << layout.front() << " rank " << rank;
        EXPECT_EQ(plan.work.flops(), first.work.flops()) << layout.front() << " rank " << rank;
      }
    }
  }
}

/// ZAYA1's equations 10 to 12: 72.93 GB of state; with the bf16 weights 90.61; 9.12 GB a rank of 8.
TEST(RankPlan, CheckpointsAreDividedAmongRanks) {
  const auto share = [](int ranks, int rank) {
    Recipe recipe = source("zaya1");
    recipe.phases.resize(1);  // whose batches divide
    const PaperRank paper(recipe, {ranks, 1}, rank);
    return plan_engine(paper.engine(), 0, 0).snapshot_bytes;
  };
  EXPECT_NEAR(static_cast<double>(share(8, 3)) * 1e-9, 9.12, 0.01);
  EXPECT_NEAR(static_cast<double>(share(1024, 700)) * 1e-6, 71, 0.5);
}

TEST(RankPlan, ALayoutThatDoesNotTileIsRefusedWithTheArithmetic) {
  try {
    plan_ranks(small({"--parallel.tensor=3", "--parallel.sequence=true"}), {8, 1});
    FAIL() << "planned";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("8 ranks do not divide into groups of parallel.tensor = 3"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace ingot::test::rank_plan_test
