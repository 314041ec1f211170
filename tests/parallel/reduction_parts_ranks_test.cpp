// What is reduced at once: parts tile the flat buffer, are dealt by depth, and begin while backward runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "comm/threads.h"
#include "models/presets.h"
#include "parallel/gradient_reducer.h"
#include "support/parity.h"
#include "tape/backward.h"
#include "train/run_layout.h"

namespace ingot::test::reduction_parts_ranks_test {

/// ZAYA1's set-up: Muon, the optimizer sharded. Error where the recipe's defaults are others.
ShardOptions zaya1_shards(int64_t bucket_bytes) {
  Recipe recipe;
  recipe.optimizer.groups.matrices = "muon";
  recipe.parallel.shard = ShardLevel::optimizer;
  recipe.parallel.bucket = fmt::format("{}", bucket_bytes);
  return rank_options(recipe).shards;
}

std::vector<ReductionPart> parts_of(const ParameterTable& table, const Placement& placement) {
  return reduction_parts(table, placement, flat_layout(table, placement, DType::f64, true),
                         std::vector<bool>(static_cast<size_t>(table.size())));
}

Placement placement_of(int64_t bucket_bytes, int ranks, bool whole) {
  return {.sharding = {.ranks = ranks,
                       .expert_ranks = ranks,
                       .bucket_bytes = bucket_bytes,
                       .whole_tensors = whole,
                       .level = ShardLevel::optimizer}};
}

bool is_of_first_layer(const ParameterSpec& spec) {
  return std::any_of(spec.layer_groups.begin(), spec.layer_groups.end(),
                     [](int64_t group) { return depth_of_layer_group(group) <= 0; });
}

TEST(ReductionParts, TileTheFlatBuffer) {
  for (const char* preset : {"zaya-tiny", "moe-small", "gpt-10m"})
    for (const bool whole : {false, true})
      for (const int64_t bytes : {1000, 100000, 1 << 30}) {
        ModelConfig config = model_preset(preset);
        config.vocab = 61;
        const Decoder decoder(config);
        const Placement placement = placement_of(bytes, 3, whole);
        const FlatLayout layout = flat_layout(decoder.table(), placement, DType::f32, true);
        std::vector<std::pair<int64_t, int64_t>> ranges;
        std::set<int> seen;
        for (const ReductionPart& part : parts_of(decoder.table(), placement))
          for (const ReductionRange& r : part.ranges) {
            const FlatBucket& bucket = layout.buckets[static_cast<size_t>(r.bucket)];
            int64_t rows = 0;
            for (const int64_t n : r.rows(bucket, 4)) rows += n;
            seen.insert(r.parameters.begin(), r.parameters.end());
            ranges.emplace_back(r.begin, r.end);
          }
        EXPECT_EQ(static_cast<int>(seen.size()), decoder.table().size());
        std::sort(ranges.begin(), ranges.end());
        int64_t at = 0;
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(begin, at) << preset << whole << bytes;
          at = end;
        }
      }
}

/// The smallest bucket that leaves the first layer and the embedding to the last part.
int64_t bucket_of_whole_layers(const ParameterTable& table) {
  for (int64_t bytes = 1024; bytes < (1 << 20); bytes += 256) {
    const std::vector<ReductionPart> parts = parts_of(table, placement_of(bytes, 4, false));
    const auto before = [&](const ReductionPart& part) {
      return std::none_of(part.parameters.begin(), part.parameters.end(),
                          [&](int i) { return is_of_first_layer(table[i]); });
    };
    if (parts.size() > 3 && std::all_of(parts.begin(), parts.end() - 1, before)) return bytes;
  }
  return 0;
}

TEST(ReductionParts, AllButTheLastBeginBeforeTheLastLayersBackward) {
  const ParityProblem problem{.model = "zaya", .layers = 6, .rows = 4};
  const OneRank one(problem);
  const ParameterTable& table = one.decoder.table();
  const int64_t bytes = bucket_of_whole_layers(table);
  ASSERT_GT(bytes, 0);
  const ShardOptions shards = zaya1_shards(bytes);
  EXPECT_EQ(shards.buckets, FlatBuckets::tensor_group) << "few matrices may lie in two shards";
  run_ranks(4, [&](ThreadRank& self) {
    const RankGroups groups(Grid({.dp = 4}), self.rank(),
                            [&](std::string name, const std::vector<int>& members) {
                              return self.group(std::move(name), members);
                            },
                            {.shards = shards});
    WeightSet weights(table, groups.placement(), Precision::f64());
    one.give_weights(weights);
    GradientBuffer buffer(table, groups.placement(), DType::f64);
    GradientReducer reducer(groups, table, buffer);
    std::vector<std::string> trace;
    reducer.on_start = [&](size_t part) { trace.push_back(fmt::format("part {}", part)); };
    ParityOutcome outcome;
    buffer.begin_step();
    reducer.begin_step(1);
    HeapArena arena;
    Tape tape(arena, parity_tape(problem, &buffer));
    ParityStep step(one.decoder, one.inputs, weights, tape, self.rank(), 1, &groups, outcome);
    step.forward(whole_model(one.decoder.config()), {});
    Backward backward(tape);
    while (const Segment* next = backward.next()) {
      if (next->layer == 0 && (trace.empty() || trace.back() != "last layer")) trace.push_back("last layer");
      backward.advance();
    }
    backward.run_deferred();
    reducer.end_micro_batch();
    reducer.finish();
    buffer.finish_step();
    const auto last_layer = std::find(trace.begin(), trace.end(), "last layer");
    ASSERT_NE(last_layer, trace.end());
    EXPECT_EQ(last_layer - trace.begin(), static_cast<int64_t>(reducer.parts().size()) - 1);
    EXPECT_EQ(trace.back(), fmt::format("part {}", reducer.parts().size() - 1));
    one.expect_gradients(buffer, groups.placement(), self.rank());
  });
}

}  // namespace ingot::test::reduction_parts_ranks_test
