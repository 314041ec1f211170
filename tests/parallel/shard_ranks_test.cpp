// Sharding among data ranks equals one rank, in double: buckets reduced during backward, ZeRO-1 and full
// sharding, whole or divided matrices, one shard group or several. Initial weights have the same bits,
// gradients agree to 1e-9 in each shard. Also the layout of flat buffers, a pure function.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "comm/threads.h"
#include "parallel/gradient_reducer.h"
#include "parallel/weight_gatherer.h"
#include "support/parity.h"
#include "tape/backward.h"

namespace ingot::test::shard_ranks_test {

struct ShardCase {
  std::string name;
  GridShape grid;
  ShardOptions shards;
  bool sequence_parallel = false;
};

std::vector<ShardCase> shard_cases() {
  const ShardOptions buckets{.buckets = FlatBuckets::bytes, .bucket_bytes = 4096};
  const ShardOptions zero{.level = ShardLevel::optimizer};
  const ShardOptions zero_buckets{
      .level = ShardLevel::optimizer, .buckets = FlatBuckets::bytes, .bucket_bytes = 4096};
  const ShardOptions zero_whole{.level = ShardLevel::optimizer, .whole_tensors = true};
  const ShardOptions zero_hybrid{.level = ShardLevel::optimizer, .ranks = 2};
  const ShardOptions zero_parts{.level = ShardLevel::optimizer, .bucket_bytes = 4096};
  const ShardOptions zero_parts_whole{
      .level = ShardLevel::optimizer, .bucket_bytes = 4096, .whole_tensors = true};
  const ShardOptions zero_parts_hybrid{.level = ShardLevel::optimizer, .ranks = 2, .bucket_bytes = 4096};
  const ShardOptions full{.level = ShardLevel::full, .buckets = FlatBuckets::layer_group};
  const ShardOptions full_hybrid{.level = ShardLevel::full, .ranks = 2, .buckets = FlatBuckets::layer_group};
  const ShardOptions full_whole{
      .level = ShardLevel::full, .buckets = FlatBuckets::layer_group, .whole_tensors = true};
  const GridShape dp2{.dp = 2}, dp4{.dp = 4};
  return {{"buckets_dp2", dp2, buckets},
          {"buckets_dp2_tp2", {.dp = 2, .tp = 2}, buckets},
          {"zero_dp2", dp2, zero},
          {"zero_dp4", dp4, zero},
          {"zero_buckets_dp4", dp4, zero_buckets},
          {"zero_whole_dp4", dp4, zero_whole},
          {"zero_hybrid_dp4", dp4, zero_hybrid},
          {"zero_parts_dp4", dp4, zero_parts},
          {"zero_parts_dp2_tp2_sequence", {.dp = 2, .tp = 2}, zero_parts, true},
          {"zero_parts_whole_dp4", dp4, zero_parts_whole},
          {"zero_parts_hybrid_dp4", dp4, zero_parts_hybrid},
          {"full_dp2", dp2, full},
          {"full_dp4", dp4, full},
          {"full_hybrid_dp4", dp4, full_hybrid},
          {"full_whole_dp2", dp2, full_whole},
          {"full_dp2_tp2", {.dp = 2, .tp = 2}, full},
          {"full_dp2_tp2_sequence", {.dp = 2, .tp = 2}, full, true}};
}

std::vector<ShardCase> expert_shard_cases() {
  const ShardOptions zero_whole{.level = ShardLevel::optimizer, .whole_tensors = true};
  const ShardOptions zero_parts{.level = ShardLevel::optimizer, .bucket_bytes = 4096};
  const ShardOptions full{.level = ShardLevel::full, .buckets = FlatBuckets::layer_group};
  const ShardOptions full_hybrid{.level = ShardLevel::full, .ranks = 2, .buckets = FlatBuckets::layer_group};
  return {{"zero_parts_dp4_ep2", {.dp = 4, .ep = 2}, zero_parts},
          {"zero_whole_dp4_ep2", {.dp = 4, .ep = 2}, zero_whole},
          {"full_dp4_ep2", {.dp = 4, .ep = 2}, full},
          {"full_dp2_ep2", {.dp = 2, .ep = 2}, full},
          {"full_hybrid_dp4_ep2", {.dp = 4, .ep = 2}, full_hybrid},
          {"full_dp2_tp2_ep4", {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, full, true}};
}

void run_rank(const ShardCase& c, const OneRank& one, ThreadRank& self) {
  const Grid grid(c.grid);
  const RankGroups groups(
      grid, self.rank(),
      [&](std::string name, const std::vector<int>& members) { return self.group(std::move(name), members); },
      {.sequence_parallel = c.sequence_parallel, .shards = c.shards});
  const ParameterTable& table = one.decoder.table();
  const bool full = c.shards.level == ShardLevel::full;
  WeightSet weights(table, groups.placement(), Precision::f64());
  std::optional<WeightGatherer> gatherer;
  if (full) gatherer.emplace(groups, weights);
  one.give_weights(weights);
  GradientBuffer buffer(table, groups.placement(), DType::f64);
  GradientReducer reducer(groups, table, buffer);
  const int64_t share = one.problem.rows / groups.batch_ranks(), first = groups.batch_rank() * share;
  ParityOutcome o;
  buffer.begin_step();
  reducer.begin_step(share);
  for (int64_t row = first; row < first + share; ++row) {
    HeapArena arena;
    Tape tape(arena, parity_tape(one.problem, &buffer));
    ParityStep step(one.decoder, one.inputs, weights, tape, row, 1, &groups, o);
    step.forward(whole_model(one.decoder.config()), {});
    Backward(tape).run();
    reducer.end_micro_batch();
  }
  EXPECT_GT(reducer.overlapped(), 0);
  reducer.finish();
  EXPECT_TRUE(buffer.finish_step().empty());
  if (full) {
    EXPECT_GT(gatherer->prefetched(),
              std::accumulate(gatherer->gathers().begin(), gatherer->gathers().end(), int64_t{0}) / 2);
    gatherer->reshard_all();
  }
  Array nll{o.nll};
  all_reduce(groups.data(), nll);
  EXPECT_LE(std::abs(nll[0] - one.outcome.nll) / one.outcome.nll, 1e-12);
  one.expect_gradients(buffer, groups.placement(), self.rank());
}

struct NamedProblem {
  ShardCase how;
  ParityProblem problem;
};

std::vector<NamedProblem> problems() {
  std::vector<NamedProblem> all;
  for (const bool recompute : {false, true}) {
    for (const char* model : {"llama", "gpt2", "record"})
      for (const ShardCase& c : shard_cases())
        if (c.grid.tp == 1 || std::string(model) == "llama")
          all.push_back({c, {.model = model, .rows = 8, .recompute = recompute}});
    for (const char* model : {"moe", "zaya"})
      for (const auto& list : {shard_cases(), expert_shard_cases()})
        for (const ShardCase& c : list)
          if (c.shards.level != ShardLevel::optimizer || c.grid.ep > 1)
            all.push_back({c, {.model = model, .rows = 8, .recompute = recompute}});
  }
  return all;
}

void PrintTo(const NamedProblem& p, std::ostream* out) {
  *out << p.problem.model << " " << p.how.name;
}

class Shares : public ::testing::TestWithParam<NamedProblem> {};

TEST_P(Shares, EqualOneRank) {
  const auto& [how, problem] = GetParam();
  const OneRank one(problem);
  run_ranks(
      Grid(how.grid).ranks(), [&](ThreadRank& self) { run_rank(how, one, self); }, 60);
}

INSTANTIATE_TEST_SUITE_P(All, Shares, ::testing::ValuesIn(problems()), [](const auto& info) {
  std::string name = info.param.problem.model + "_" + info.param.how.name +
                     (info.param.problem.recompute ? "_recompute" : "");
  return name;
});

/// A parameter that two stages hold is sharded alike on both, whatever else they hold.
TEST(FlatLayouts, CopiesOfStagesAreShardedAlike) {
  for (const bool whole : {false, true})
    for (const ParamRole role : {ParamRole::embedding, ParamRole::matrix}) {
      ParameterTable table;
      const int first =
          table.add({.name = "first", .shape = {5, 7}, .role = role, .layer_groups = {kEmbeddingGroup}});
      const int both = table.add(
          {.name = "both", .shape = {61, 13}, .role = role, .layer_groups = {kEmbeddingGroup, kHeadGroup}});
      const int last =
          table.add({.name = "last", .shape = {90, 3}, .role = role, .layer_groups = {kHeadGroup}});
      for (const bool head : {false, true}) {
        const FlatSharding sharding{.ranks = 3,
                                    .buckets = FlatBuckets::layer_group,
                                    .whole_tensors = whole,
                                    .level = ShardLevel::full};
        const FlatLayout here = flat_layout(
            table, {.layer_groups = {head ? kHeadGroup : kEmbeddingGroup}, .sharding = sharding}, DType::f32);
        const FlatBucket& unit = here.buckets[static_cast<size_t>(here.bucket_of[static_cast<size_t>(both)])];
        EXPECT_EQ(unit.parameters, std::vector<int>{both});
        EXPECT_EQ(unit.layer_group, depth_of_layer_group(head ? kHeadGroup : kEmbeddingGroup));
        EXPECT_EQ(here.offsets[static_cast<size_t>(both)], unit.begin);
        EXPECT_EQ(unit.shard_bytes(),
                  whole && role == ParamRole::matrix ? 3200 : 1152);  // 61 x 13 x 4 bytes in blocks of 128
        EXPECT_EQ(here.shapes[static_cast<size_t>(head ? first : last)].numel(), 0);
      }
      const FlatLayout alone =
          flat_layout(table, {.sharding = {.ranks = 3, .buckets = FlatBuckets::layer_group}}, DType::f32);
      EXPECT_EQ(alone.bucket_of[static_cast<size_t>(both)], alone.bucket_of[static_cast<size_t>(first)]);
    }
}

/// Every form of sharding of random tables: buckets tile the buffer, tensors lie inside buckets without
/// overlap, shards are equal, whole matrices are not divided, and all ranks see one layout.
TEST(FlatLayouts, TileAndAgree) {
  const Random random(17, RandomPurpose::test, 0);
  uint64_t draw = 0;
  for (int trial = 0; trial < 200; ++trial) {
    ParameterTable table;
    const auto extent = [&](int64_t most) {
      return 1 + static_cast<int64_t>(random.uniform(draw++) * static_cast<double>(most));
    };
    for (int64_t part = -2; part < 4; ++part) {
      table.begin_layer_group(part);
      for (int k = 0; k < 3; ++k) {
        const bool expert = part >= 0 && k == 1;
        ParameterSpec spec{.name = fmt::format("p{}.{}", part, k),
                           .shape = expert   ? Shape{4, extent(20), extent(20)}
                                    : k == 0 ? Shape{extent(50), extent(50)}
                                             : Shape{extent(90)},
                           .role = expert   ? ParamRole::expert
                                   : k == 0 ? ParamRole::matrix
                                            : ParamRole::norm};
        if (expert) spec.shard = {ShardAxis::expert, 0};
        table.add(spec);
      }
    }
    FlatSharding sharding{.ranks = static_cast<int>(extent(5)),
                          .expert_ranks = static_cast<int>(extent(3)),
                          .buckets = static_cast<FlatBuckets>(trial % 3),
                          .bucket_bytes = extent(20000),
                          .whole_tensors = trial % 2 == 1,
                          .level = ShardLevel::optimizer};
    const FlatLayout layout = flat_layout(table, {.sharding = sharding}, DType::f32);
    sharding.rank = sharding.ranks - 1;
    const FlatLayout other = flat_layout(table, {.sharding = sharding}, DType::f32);
    EXPECT_EQ(layout.offsets, other.offsets);
    int64_t at = 0;
    for (const FlatBucket& u : layout.buckets) {
      EXPECT_EQ(u.begin, at);
      EXPECT_EQ((u.end - u.begin) % (128 * u.ranks), 0);
      EXPECT_EQ(u.ranks, u.group == FlatGroup::experts ? sharding.expert_ranks : sharding.ranks);
      at = u.end;
      std::vector<std::pair<int64_t, int64_t>> taken;
      for (const int i : u.parameters) {
        const int64_t begin = layout.offsets[static_cast<size_t>(i)],
                      end = begin + 4 * layout.shapes[static_cast<size_t>(i)].numel();
        EXPECT_EQ(begin % 128, 0);
        EXPECT_GE(begin, u.begin);
        EXPECT_LE(end, u.end);
        taken.emplace_back(begin, end);
        if (sharding.whole_tensors && u.group != FlatGroup::vectors) {
          EXPECT_EQ((begin - u.begin) / u.shard_bytes(), (end - 1 - u.begin) / u.shard_bytes());
        }
      }
      std::sort(taken.begin(), taken.end());
      for (size_t k = 1; k < taken.size(); ++k) EXPECT_LE(taken[k - 1].second, taken[k].first);
    }
    EXPECT_EQ(at, layout.bytes);
    EXPECT_EQ(std::count(layout.bucket_of.begin(), layout.bucket_of.end(), -1), 0);
  }
}

}  // namespace ingot::test::shard_ranks_test
