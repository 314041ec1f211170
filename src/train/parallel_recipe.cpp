// See parallel_recipe.h.
#include "train/parallel_recipe.h"

#include <algorithm>

namespace ingot {
namespace {

void validate_context(const ParallelConfig& p, ConfigErrors& e) {
  if (p.context_inner <= 1) return;
  if (p.context_form == ContextForm::heads)
    e.add("context_inner",
          "in the form heads all {} context ranks exchange heads; set context_form to gather or ring, or "
          "leave it at 1",
          p.context);
  else if (p.context_inner >= p.context || p.context % p.context_inner != 0)
    e.add("context_inner",
          "{} context ranks do not make several groups of {}; choose a smaller divisor of {}, or "
          "context_form = \"heads\" "
          "for one group",
          p.context, p.context_inner, p.context);
}

void validate_dispatch(const ParallelConfig& p, ConfigErrors& e) {
  const bool by_node = p.dispatch == DispatchKind::hierarchical,
             options = p.dispatch_capacity != 0 || p.dispatch_bf16;
  if (by_node && p.node_ranks < 1)
    e.add("node_ranks",
          "a hierarchical dispatch must know how many ranks share a node: set 1 or more, found {}",
          p.node_ranks);
  if (!by_node && p.node_ranks != 0)
    e.add("node_ranks", "is for dispatch = hierarchical only; leave it at 0");
  if (p.dispatch_drop && p.dispatch_capacity == 0)
    e.add("dispatch_drop",
          "a capacity for any routing drops nothing: set dispatch_capacity, or this to false");
  if (p.dispatch == DispatchKind::all_gather && options)
    e.add("dispatch",
          "all_gather brings all rows in their own type: set all_to_all or hierarchical, or leave "
          "dispatch_{} alone",
          p.dispatch_bf16 ? "bf16" : "capacity");
  if (p.expert * p.expert_tensor == 1 && (p.dispatch != DispatchKind::all_to_all || options))
    e.add("dispatch", "every rank has all experts: set expert to 2 or more, or leave the dispatch alone");
}

void validate_pipeline(const ParallelConfig& p, ConfigErrors& e) {
  using enum PipelineScheduleKind;
  const bool one_chunk = p.schedule == one_forward_one_backward || p.schedule == zero_bubble;
  if (p.pipeline == 1 && p.chunks > 1)
    e.add("chunks", "there is no pipeline: set pipeline to 2 or more, or chunks to 1");
  if (p.pipeline == 1 && !p.layout.empty())
    e.add("layout", "there is no pipeline to lay out: set pipeline to 2 or more");
  if (p.pipeline == 1 && (p.schedule == interleaved || p.schedule == zero_bubble))
    e.add("schedule", "{} is of pipelines: set pipeline to 2 or more, or schedule to 1f1b or merged",
          name_of(p.schedule));
  if (p.chunks > 1 && one_chunk)
    e.add("schedule", "{} has one chunk per rank; set interleaved or merged", name_of(p.schedule));
  if (p.chunks > 1 && !p.layout.empty())
    e.add("chunks", "the layout says how many stages a rank has; leave chunks at 1");
}

}  // namespace

void ParallelConfig::validate(ConfigErrors& e) const {
  int64_t ranks = 0;
  if (!multiply({std::max<int64_t>(1, data), tensor, context, pipeline}, ranks) ||
      static_cast<double>(ranks) > bounds::kRanks)
    return e.add("data", "data x tensor x context x pipeline = {} x {} x {} x {} are more than {:.0f} ranks",
                 data, tensor, context, pipeline, bounds::kRanks);
  if (sequence && tensor == 1)
    e.add("sequence", "there are no tensor ranks: set tensor to 2 or more, or sequence to false");
  if (expert_tensor > 1 && tensor > 1 && !sequence)
    e.add("expert_tensor",
          "without sequence parallelism tensor ranks see the same rows and compute experts whole; set "
          "sequence = true");
  if (report_after > abort_after)
    e.add("report_after", "is {} s, but the run ends after abort_after = {} s: set it lower", report_after,
          abort_after);
  validate_context(*this, e);
  validate_dispatch(*this, e);
  validate_pipeline(*this, e);
}

}  // namespace ingot
