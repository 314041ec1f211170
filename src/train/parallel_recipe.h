// [parallel] of a recipe: how the ranks of a run share the work (docs/parallel.md).
#pragma once
#include <cmath>
#include <tuple>

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
  double dispatch_room = 0;
  bool dispatch_drop = false, dispatch_bf16 = false;
  ShardLevel shard = ShardLevel::none;
  int64_t shard_ranks = 0;
  bool whole_matrices = false;
  std::string bucket = "25MiB", self_test = "4MiB";
  double slowest_rank = 0.1;
  BatchFit batch_fit = BatchFit::refuse;
  template <class Visitor>
  void visit(Visitor& v) {
    v("data", data, "groups of ranks that train on different sequences; 0: as many as the ranks allow");
    v("tensor", tensor, "ranks that share each product of attention and dense MLP");
    v("sequence", sequence, "tensor ranks share out the rows between their products (sequence parallelism)");
    v("context", context, "ranks that share each sequence");
    v("context_form", context_form,
      "how they attend: heads (whole sequences of some heads), gather or ring (all keys and values)");
    v("context_inner", context_inner,
      "neighbours that exchange heads, while keys and values travel among groups of them (gather, ring)");
    v("pipeline", pipeline, "ranks that share the model's depth, stage behind stage");
    v("chunks", chunks, "stages of each of them");
    v("schedule", schedule,
      "order of their micro-batches: 1f1b, interleaved (several chunks), zero_bubble, or merged (also "
      "without a pipeline)");
    v("layout", layout, "what stands in which stage, e.g. Et*3|t*4|t*3L; empty: layers shared out evenly");
    v("expert", expert, "ranks that share out the experts");
    v("expert_tensor", expert_tensor, "ranks that share the width of each expert");
    v("dispatch", dispatch,
      "how tokens reach their experts: all_to_all, all_gather, or hierarchical (once to each node)");
    v("node_ranks", node_ranks, "ranks in a row that share a node, for dispatch = hierarchical");
    v("dispatch_room", dispatch_room,
      "rows that a rank has room for, times those of an even routing; 0: for any routing");
    v("dispatch_drop", dispatch_drop, "what exceeds the room is dropped, else it is an error");
    v("dispatch_bf16", dispatch_bf16, "rows in fp32 travel to experts and back in bf16");
    v("shard", shard,
      "what data ranks share out: none; optimizer: its state (ZeRO-1); full: weights and gradients too");
    v("shard_ranks", shard_ranks, "data ranks that share out one copy; 0: all of them");
    v("whole_matrices", whole_matrices,
      "no matrix is shared by two ranks: Muon sends nothing, shares are less even");
    v("bucket", bucket, "how much gradient travels at once while backward runs");
    v("batch_fit", batch_fit,
      "a batch that does not divide among data ranks: refuse it, or round it down or up");
    v("self_test", self_test,
      "what each rank exchanges with others before the first step, to find slow ones; empty: no test");
    v("slowest_rank", slowest_rank, "a rank slower than this share of the median is refused");
  }
  void validate(ConfigErrors& e) const {
    for (const auto& [name, value, least] : {std::tuple<const char*, int64_t, int64_t>{"data", data, 0},
                                             {"tensor", tensor, 1},
                                             {"context", context, 1},
                                             {"context_inner", context_inner, 1},
                                             {"pipeline", pipeline, 1},
                                             {"chunks", chunks, 1},
                                             {"expert", expert, 1},
                                             {"expert_tensor", expert_tensor, 1}})
      if (value < least) e.add(name, "must be at least {}, found {}", least, value);
    if (!(slowest_rank >= 0 && slowest_rank < 1))
      e.add("slowest_rank", "must lie in [0, 1), found {}", slowest_rank);
    if (sequence && tensor == 1)
      e.add("sequence", "there are no tensor ranks: set tensor to 2 or more, or sequence to false");
    if (expert_tensor > 1 && tensor > 1 && !sequence)
      e.add("expert_tensor",
            "without sequence parallelism tensor ranks see the same rows and compute experts whole; set "
            "sequence = true");
    validate_context(e);
    validate_dispatch(e);
    validate_pipeline(e);
  }
  void validate_dispatch(ConfigErrors& e) const {
    const bool by_node = dispatch == DispatchKind::hierarchical,
               options = dispatch_room != 0 || dispatch_bf16;
    if (by_node && node_ranks < 1)
      e.add("node_ranks",
            "a hierarchical dispatch must know how many ranks share a node: set 1 or more, found {}",
            node_ranks);
    if (!by_node && node_ranks != 0)
      e.add("node_ranks", "is for dispatch = hierarchical only; leave it at 0");
    if (!(dispatch_room == 0 || (dispatch_room >= 1 && std::isfinite(dispatch_room))))
      e.add("dispatch_room", "must be 0 or at least 1, found {}: an even routing must fit", dispatch_room);
    if (dispatch_drop && dispatch_room == 0)
      e.add("dispatch_drop", "room for any routing drops nothing: set dispatch_room, or this to false");
    if (dispatch == DispatchKind::all_gather && options)
      e.add("dispatch",
            "all_gather brings all rows in their own type: set all_to_all or hierarchical, or leave "
            "dispatch_{} alone",
            dispatch_bf16 ? "bf16" : "room");
    if (expert * expert_tensor == 1 && (dispatch != DispatchKind::all_to_all || options))
      e.add("dispatch", "every rank has all experts: set expert to 2 or more, or leave the dispatch alone");
  }
  void validate_context(ConfigErrors& e) const {
    if (context_inner <= 1) return;
    if (context_form == ContextForm::heads)
      e.add("context_inner",
            "in the form heads all {} context ranks exchange heads; set context_form to gather or ring, or "
            "leave it at 1",
            context);
    else if (context_inner >= context || context % context_inner != 0)
      e.add("context_inner",
            "{} context ranks do not make several groups of {}; choose a smaller divisor of {}, or "
            "context_form = \"heads\" "
            "for one group",
            context, context_inner, context);
  }
  void validate_pipeline(ConfigErrors& e) const {
    using enum PipelineScheduleKind;
    const bool one_chunk = schedule == one_forward_one_backward || schedule == zero_bubble;
    if (pipeline == 1 && chunks > 1)
      e.add("chunks", "there is no pipeline: set pipeline to 2 or more, or chunks to 1");
    if (pipeline == 1 && !layout.empty())
      e.add("layout", "there is no pipeline to lay out: set pipeline to 2 or more");
    if (pipeline == 1 && (schedule == interleaved || schedule == zero_bubble))
      e.add("schedule", "{} is of pipelines: set pipeline to 2 or more, or schedule to 1f1b or merged",
            name_of(schedule));
    if (chunks > 1 && one_chunk)
      e.add("schedule", "{} has one chunk per rank; set interleaved or merged", name_of(schedule));
    if (chunks > 1 && !layout.empty())
      e.add("chunks", "the layout says how many stages a rank has; leave chunks at 1");
  }
  /// Ranks of one group that trains on its own sequences.
  int64_t ranks_per_group() const { return pipeline * context * tensor; }
};

}  // namespace ingot
