// [parallel] of a recipe: how the ranks of a run share the work (docs/parallel.md).
#pragma once
#include <string>

#include "base/config.h"
#include "nn/context.h"
#include "nn/parameter.h"
#include "parallel/pipeline_schedule.h"

namespace ingot {

/// What happens to a batch that the data ranks cannot divide among them.
enum class BatchFit { refuse, down, up };
constexpr auto enum_names(BatchFit) {
  return names_in_order<BatchFit>("refuse", "down", "up");
}

struct ParallelConfig {
  int64_t data = 0, tensor = 1;
  bool sequence = false;
  int64_t context = 1;
  ContextForm context_form = ContextForm::heads;
  int64_t context_inner = 1;
  int64_t pipeline = 1, chunks = 1;
  PipelineScheduleKind schedule = PipelineScheduleKind::one_forward_one_backward;
  std::string layout;
  int64_t expert = 1, expert_tensor = 1;
  DispatchKind dispatch = DispatchKind::all_to_all;
  int64_t node_ranks = 0;
  double dispatch_capacity = 0;
  bool dispatch_drop = false, dispatch_bf16 = false;
  ShardLevel shard = ShardLevel::none;
  int64_t shard_ranks = 0;
  bool whole_matrices = false;
  std::string bucket = "25MiB", self_test = "4MiB";
  double slowest_rank = 0.1, report_after = 30, abort_after = 600;
  BatchFit batch_fit = BatchFit::refuse;
  template <class Visitor>
  void visit(Visitor& v) {
    v("data", data, "groups of ranks that train on different sequences; 0: as many as the ranks allow",
      up_to(bounds::kRanks));
    v("tensor", tensor, "ranks that share each product of attention and dense MLP",
      between(1, bounds::kRanks));
    v("sequence", sequence, "tensor ranks shard the rows between their products (sequence parallelism)");
    v("context", context, "ranks that share each sequence", between(1, bounds::kRanks));
    v("context_form", context_form,
      "how they attend: heads (whole sequences of some heads), gather or ring (all keys and values)");
    v("context_inner", context_inner,
      "neighbours that exchange heads, while keys and values are sent among groups of them (gather, ring)",
      between(1, bounds::kRanks));
    v("pipeline", pipeline, "ranks that share the model's depth, stage behind stage",
      between(1, bounds::kRanks));
    v("chunks", chunks, "stages of each of them", between(1, bounds::kLayers));
    v("schedule", schedule,
      "order of their micro-batches: 1f1b, interleaved (several chunks), zero_bubble, or merged (also "
      "without a pipeline)");
    v("layout", layout, "the layers of each stage, e.g. Et*3|t*4|t*3L; empty: evenly divided");
    v("expert", expert, "ranks among which the experts are divided", between(1, bounds::kRanks));
    v("expert_tensor", expert_tensor, "ranks that share the width of each expert",
      between(1, bounds::kRanks));
    v("dispatch", dispatch,
      "how tokens reach their experts: all_to_all, all_gather, or hierarchical (once to each node)");
    v("node_ranks", node_ranks, "ranks in a row that share a node, for dispatch = hierarchical",
      up_to(bounds::kRanks));
    v("dispatch_capacity", dispatch_capacity,
      "receive buffer of a rank, as a multiple of an even routing's rows; 0: for any routing",
      zero_or(1, bounds::kRanks));
    v("dispatch_drop", dispatch_drop, "rows beyond that capacity are dropped; otherwise they are an error");
    v("dispatch_bf16", dispatch_bf16, "rows in fp32 are sent to experts and back in bf16");
    v("shard", shard,
      "what data ranks shard: none; optimizer: its state (ZeRO-1); full: weights and gradients too");
    v("shard_ranks", shard_ranks, "data ranks that shard one copy; 0: all of them", up_to(bounds::kRanks));
    v("whole_matrices", whole_matrices,
      "no matrix is shared by two ranks: Muon sends nothing, shares are less even");
    v("bucket", bucket,
      "gradients that are reduced at once while backward runs; auto: the smallest size with 90 % of the "
      "bandwidth "
      "that is measured at the start");
    v("batch_fit", batch_fit,
      "a batch that does not divide among data ranks: refuse it, or round it down or up");
    v("self_test", self_test,
      "what each rank exchanges with others before the first step, to find slow ones; empty: no test");
    v("slowest_rank", slowest_rank, "a rank slower than this share of the median is refused", below_one());
    v("report_after", report_after, "seconds of waiting for other ranks after which a warning names them",
      positive(1e6));
    v("abort_after", abort_after, "seconds of waiting for other ranks after which the run ends",
      positive(1e6));
  }
  void validate(ConfigErrors& errors) const;
  bool measures_bucket() const { return bucket == "auto"; }
  /// Ranks of one group that trains on its own sequences.
  int64_t ranks_per_group() const { return pipeline * context * tensor; }
};

}  // namespace ingot
