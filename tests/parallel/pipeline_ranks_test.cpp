// Pipelines of thread ranks equal one rank in double, for small models under every schedule. Initial weights
// have the same bits; the loss agrees to 1e-12, every gradient (also of parameters that several stages hold)
// and the gradient norm to 1e-9. Each rank's step runs in the slab that a dry run on the null device planned,
// with the peak it predicted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "comm/threads.h"
#include "parallel/gradient_reducer.h"
#include "support/layout_parity.h"

namespace ingot::test::pipeline_ranks_test {

using enum PipelineScheduleKind;

class Pipelines : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(Pipelines, EqualOneRank) {
  const LayoutCase& c = GetParam();
  const OneRank one(c.problem);
  run_ranks(
      Grid(c.grid).ranks(), [&](ThreadRank& self) { expect_layout_equals_one_rank(c, one, self); }, 60);
}

std::vector<LayoutCase> cases() {
  std::vector<LayoutCase> all;
  const GridShape pp2{.pp = 2}, pp4{.pp = 4};
  for (const char* model : {"llama", "gpt2", "moe", "zaya"})
    for (const bool recompute : {false, true}) {
      const ParityProblem p{.model = model, .layers = 4, .recompute = recompute},
          long_p{.model = model, .layers = 4, .rows = 8, .recompute = recompute};
      all.push_back({.problem = p, .grid = pp2});
      all.push_back({.problem = p, .grid = pp2, .schedule = zero_bubble});
      all.push_back({.problem = p, .grid = pp2, .schedule = merged});
      all.push_back({.problem = p, .grid = pp2, .chunks = 2, .schedule = interleaved});
      all.push_back({.problem = p, .grid = pp2, .chunks = 2, .schedule = merged});
      all.push_back({.problem = long_p, .grid = pp4});
      all.push_back({.problem = long_p, .grid = pp4, .schedule = zero_bubble});
    }
  for (const char* model : {"llama", "gpt2", "moe", "zaya"}) {
    const ParityProblem p{.model = model, .rows = 8};
    all.push_back({.problem = p, .grid = pp2, .layout = "E|t|tt|L", .schedule = interleaved});
    all.push_back({.problem = p, .grid = pp4, .layout = "E|tt|t|L"});
    all.push_back({.problem = p, .grid = pp2, .layout = "E|tt||tL", .schedule = interleaved});
    all.push_back({.problem = p, .grid = {.pp = 2, .dp = 2}, .layout = "Et|ttL"});
  }
  for (const char* model : {"record", "mla", "llama-lora", "moe-shared", "moe-latent", "mtp", "mtp-moe"})
    all.push_back({.problem = {.model = model}, .grid = pp2, .schedule = zero_bubble});
  for (const bool recompute : {false, true}) {  // modules of multi-token prediction before the loss
    const ParityProblem p{.model = "mtp", .recompute = recompute},
        shared{.model = "mtp-moe", .recompute = recompute};
    for (const PipelineScheduleKind kind : {one_forward_one_backward, zero_bubble, merged}) {
      all.push_back({.problem = p, .grid = pp2, .layout = "Etttmm|L", .schedule = kind});
      all.push_back({.problem = shared, .grid = pp2, .layout = "Etttm|L", .schedule = kind});
    }
    for (const PipelineScheduleKind kind : {interleaved, merged}) {
      all.push_back({.problem = p, .grid = pp2, .layout = "Et|tt|mm|L", .schedule = kind});
      all.push_back({.problem = p, .grid = pp2, .layout = "Et|tt|m|mL", .schedule = kind});
      all.push_back({.problem = shared, .grid = pp2, .layout = "Et|t|tm|L", .schedule = kind});
    }
    const ParityProblem p8{.model = "mtp", .rows = 8, .recompute = recompute};
    all.push_back({.problem = p8, .grid = pp4, .layout = "Ettt|m|m|L", .schedule = zero_bubble});
    all.push_back({.problem = {.model = "mtp", .rows = 12, .recompute = recompute},
                   .grid = {.pp = 3},
                   .layout = "E|tt|t|mm||L",
                   .schedule = interleaved});
    all.push_back({.problem = p8, .grid = {.pp = 2, .dp = 2}, .layout = "Etttmm|L"});
    all.push_back({.problem = p8, .grid = {.pp = 2, .tp = 2}, .layout = "Etttmm|L", .schedule = zero_bubble});
    all.push_back({.problem = p8,
                   .grid = {.pp = 2, .tp = 2},
                   .options = {.sequence_parallel = true},
                   .layout = "Et|tt|m|mL",
                   .schedule = merged});
  }
  all.push_back({.problem = {.model = "mtp-moe", .rows = 8},
                 .grid = {.pp = 2, .dp = 2, .ep = 2},
                 .layout = "Et|t|tm|L",
                 .schedule = merged});
  for (const int group : {3, 4})
    all.push_back({.problem = {.model = "zaya", .layers = 4, .rows = 8},
                   .grid = pp2,
                   .chunks = 2,
                   .schedule = merged,
                   .group = group});
  for (const int chunks : {1, 3})
    all.push_back({.problem = {.model = "record"}, .grid = pp2, .chunks = chunks, .schedule = merged});
  for (const PipelineScheduleKind kind : {one_forward_one_backward, zero_bubble, merged}) {
    all.push_back(
        {.problem = {.model = "llama", .rows = 8}, .grid = {.pp = 2, .dp = 1, .tp = 2}, .schedule = kind});
    all.push_back({.problem = {.model = "llama", .rows = 8},
                   .grid = {.pp = 2, .tp = 2},
                   .options = {.sequence_parallel = true},
                   .schedule = kind});
    for (const char* model : {"moe", "zaya"}) {
      all.push_back(
          {.problem = {.model = model, .rows = 8}, .grid = {.pp = 2, .dp = 2, .ep = 2}, .schedule = kind});
      all.push_back({.problem = {.model = model, .rows = 8, .starve = true},
                     .grid = {.pp = 2, .dp = 2, .ep = 2},
                     .schedule = kind});
    }
    all.push_back({.problem = {.model = "moe", .rows = 8, .mask_last = true},
                   .grid = {.pp = 2, .dp = 2, .tp = 2, .ep = 2},
                   .schedule = kind});
  }
  // Full sharding: several passes and chunks at a time, parameters that several stages hold, and interleaved
  // passes.
  const RankOptions full{.shards = {.level = ShardLevel::full, .buckets = FlatBuckets::layer_group}};
  const RankOptions full_sequence{.sequence_parallel = true, .shards = full.shards};
  RankOptions full_copies = full, full_whole = full;
  full_copies.shards.ranks = 2, full_whole.shards.whole_tensors = true;
  const GridShape pp2_dp2{.pp = 2, .dp = 2};
  for (const bool recompute : {false, true}) {
    for (const char* model : {"llama", "gpt2", "moe", "zaya", "record"}) {
      const ParityProblem p{.model = model,
                            .layers = model == std::string("record") ? 0 : 4,
                            .rows = 8,
                            .recompute = recompute};
      for (const PipelineScheduleKind kind : {zero_bubble, merged})
        all.push_back({.problem = p, .grid = pp2_dp2, .options = full, .schedule = kind});
      all.push_back({.problem = p, .grid = pp2_dp2, .options = full_whole, .chunks = 2, .schedule = merged});
    }
    for (const char* model : {"gpt2", "record"})
      all.push_back(
          {.problem = {.model = model, .rows = 8, .recompute = recompute}, .grid = pp2_dp2, .options = full});
    for (const char* model : {"mtp", "mtp-moe"}) {
      const ParityProblem p{.model = model, .rows = 8, .recompute = recompute};
      const bool two = model == std::string("mtp");
      for (const PipelineScheduleKind kind : {one_forward_one_backward, zero_bubble, merged})
        all.push_back({.problem = p,
                       .grid = pp2_dp2,
                       .options = full,
                       .layout = two ? "Etttmm|L" : "Etttm|L",
                       .schedule = kind});
      all.push_back({.problem = p,
                     .grid = pp2_dp2,
                     .options = full,
                     .layout = two ? "Et|t|tm|mL" : "E|tt|tm|L",
                     .schedule = merged});
    }
    const ParityProblem p8{.model = "llama", .layers = 4, .rows = 8, .recompute = recompute};
    for (const PipelineScheduleKind kind : {one_forward_one_backward, zero_bubble, merged}) {
      all.push_back(
          {.problem = p8, .grid = {.pp = 2, .dp = 2, .tp = 2}, .options = full_sequence, .schedule = kind});
      all.push_back({.problem = {.model = "gpt2", .rows = 8, .recompute = recompute},
                     .grid = {.pp = 2, .dp = 2, .tp = 2},
                     .options = full,
                     .schedule = kind});
      all.push_back({.problem = {.model = "zaya", .rows = 8, .recompute = recompute, .starve = true},
                     .grid = {.pp = 2, .dp = 2, .ep = 2},
                     .options = full,
                     .schedule = kind});
    }
    all.push_back({.problem = {.model = "gpt2", .rows = 16, .recompute = recompute},
                   .grid = {.pp = 2, .dp = 4},
                   .options = full_copies});
    all.push_back({.problem = {.model = "moe", .rows = 8, .recompute = recompute},
                   .grid = {.dp = 2, .ep = 2},
                   .options = full,
                   .schedule = merged});
  }
  for (const RankOptions& options : {RankOptions{}, {.context = ContextForm::ring, .context_inner = 2}})
    all.push_back({.problem = {.model = "llama", .rows = 8},
                   .grid = {.cp = options.context_inner * 2},
                   .options = options,
                   .schedule = merged});
  return all;
}

std::string pipeline_name(const ::testing::TestParamInfo<LayoutCase>& info) {
  return fmt::format("{}_{}", info.index, info.param.name());
}

/// Two ranks with half of the experts each, no pipeline, eight micro-batches: seven of eight forwards and
/// backwards are merged. The fraction of waits during which the other pass computed.
TEST(PipelineMerged, WaitsForExpertsAreHidden) {
  const OneRank one({.model = "moe", .rows = 16});
  const ParameterTable& table = one.decoder.table();
  const Grid grid({.dp = 2, .ep = 2});
  std::string turns[2];
  run_ranks(2, [&](ThreadRank& self) {
    struct Order final : TapeObserver {
      void tensor(const std::string& name, const Tensor&) override {
        const char c = name.find(".d_") != std::string::npos ? 'B' : 'F';
        if (turns.empty() || turns.back() != c) turns += c;
      }
      std::string turns;
    } order;
    const GroupMaker make = [&](std::string name, const std::vector<int>& members) {
      return self.group(std::move(name), members);
    };
    const RankGroups groups(grid, self.rank(), make);
    const PipelineGroups pipe(grid, self.rank(), make, even_pipeline_layout(1, 1, 3, 0), table);
    WeightSet weights(table, groups.placement(), Precision::f64());
    one.give_weights(weights);
    GradientBuffer buffer(table, groups.placement(), DType::f64);
    TapeOptions options = parity_tape(one.problem, &buffer);
    options.observer = &order;
    ParityOutcome o;
    HeapArena arena;
    buffer.begin_step();
    const auto step = [&](Tape& tape, int b) {
      return std::make_unique<ParityStep>(one.decoder, one.inputs, weights, tape, groups.batch_rank() * 8 + b,
                                          1, &groups, o);
    };
    const Pipeline pipeline(one.decoder, weights.precision(), pipe,
                            make_pipeline_schedule(merged, {1, 1, 8}));
    const InterleavedPasses::Waits waits = pipeline.run(step, kParityLength, options, arena);
    reduce_gradients(groups, table, buffer);
    one.expect_gradients(buffer, groups.placement(), self.rank());
    EXPECT_GT(waits.all, 0);
    EXPECT_EQ(waits.hidden, 7 * 12);
    EXPECT_EQ(waits.all, 7 * (12 + 3) + 15);  // 3 when the partner has ended, 15 of the passes without one
    RecordProperty(fmt::format("hidden_waits_rank{}", self.rank()),
                   fmt::format("{} of {}", waits.hidden, waits.all));
    turns[self.rank()] = order.turns;
  });
  EXPECT_GE(turns[0].size(), size_t{7 * 3 * 3});  // pairs, layers, changes per layer
  EXPECT_EQ(turns[0], turns[1]);                  // the ranks do the same in the same order
}

/// A pipeline over `ranks` ranks of a model with three layers and two modules that predict ahead.
void expect_refused(const char* why, int ranks, const char* layout, int layout_ranks,
                    const PipelineShape& shape) {
  const Decoder decoder(small_model_config("mtp"));
  run_ranks(ranks, [&](ThreadRank& self) {
    const GroupMaker make = [&](std::string name, const std::vector<int>& members) {
      return self.group(std::move(name), members);
    };
    try {
      const PipelineGroups groups(Grid({.pp = ranks}), self.rank(), make,
                                  parse_pipeline_layout(layout, layout_ranks, 3, 2), decoder.table());
      Pipeline(decoder, Precision::f64(), groups, make_pipeline_schedule(interleaved, shape));
      ADD_FAILURE() << "not refused: " << why;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  });
}

TEST(PipelineRefusals, NameTheReason) {
  expect_refused("is made for 2 ranks", 1, "Et|ttmmL", 2, {1, 1, 4});
  expect_refused("has 2 stages for one rank", 1, "Et|ttmmL", 1, {1, 2, 4});
  expect_refused("a schedule of 2 stages x 2 chunks", 2, "Et|ttmmL", 2, {2, 2, 4});
}

INSTANTIATE_TEST_SUITE_P(Ranks, Pipelines, ::testing::ValuesIn(cases()), pipeline_name);

}  // namespace ingot::test::pipeline_ranks_test
