// See layout_cases.h.
#include "support/layout_cases.h"

namespace ingot::test {
namespace {

PipelineLayout stages_of(const CheckedLayout& l, const ModelConfig& m) {
  PipelineLayout p = even_pipeline_layout(l.grid.pp, l.chunks, m.layers, m.mtp.modules());
  if (!l.loss_alone) return p;
  StageParts &last = p.stages.back(), &before = p.stages[p.stages.size() - 2];
  before.layers += last.layers, before.modules = last.modules;
  last = {.first_layer = m.layers, .first_module = m.mtp.modules(), .loss = true};
  return p;
}

}  // namespace

std::vector<CheckedLayout> layout_cases() {
  using enum ContextForm;
  using enum DispatchKind;
  const RankOptions sequence{.sequence_parallel = true};
  const auto form = [](ContextForm f, bool seq = false) {
    return RankOptions{.sequence_parallel = seq, .context = f};
  };
  const auto mixed = [](ContextForm f, bool seq = false) {
    return RankOptions{.sequence_parallel = seq, .context = f, .context_inner = 2};
  };
  const auto by = [](DispatchKind d, bool seq = false) {
    return RankOptions{.sequence_parallel = seq, .dispatch = d, .node_ranks = 2};
  };
  const auto shards = [](ShardLevel level, int ranks, bool seq = false) {
    return RankOptions{.sequence_parallel = seq,
                       .shards = {.level = level, .ranks = ranks, .buckets = FlatBuckets::layer_group}};
  };
  return {
      {"dp2", {.dp = 2}},
      {"tp2", {.tp = 2}},
      {"tp2_sequence", {.tp = 2}, sequence},
      {"cp2_heads", {.cp = 2}, form(heads)},
      {"cp2_gather", {.cp = 2}, form(gather)},
      {"cp2_ring", {.cp = 2}, form(ring)},
      {"cp4_ring_inner2", {.cp = 4}, mixed(ring)},
      {"dp2_cp4_tp2_sequence_gather_inner2", {.dp = 2, .cp = 4, .tp = 2}, mixed(gather, true)},
      {"ep2", {.dp = 2, .ep = 2}},
      {"ep2_gather", {.dp = 2, .ep = 2}, by(all_gather)},
      {"ep4_nodes2", {.dp = 4, .ep = 4}, by(hierarchical)},
      {"dp4_ep2", {.dp = 4, .ep = 2}},
      {"dp2_tp2_ep2", {.dp = 2, .tp = 2, .ep = 2}},
      {"dp2_tp2_sequence_ep4", {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, sequence},
      {"dp2_tp2_sequence_ep4_gather", {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, by(all_gather, true)},
      {"dp2_tp2_sequence_ep4_nodes2", {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, by(hierarchical, true)},
      {"dp4_tp2_sequence_ep2", {.dp = 4, .tp = 2, .ep = 2, .etp = 1}, sequence},
      {"dp2_tp2_sequence_ep1", {.dp = 2, .tp = 2, .ep = 1, .etp = 1}, sequence},
      {"dp2_etp2", {.dp = 2, .etp = 2}},
      {"tp2_sequence_etp2", {.tp = 2, .etp = 2}, sequence},
      {"dp4_ep2_etp2", {.dp = 4, .ep = 2, .etp = 2}},
      {"dp4_ep2_etp2_gather", {.dp = 4, .ep = 2, .etp = 2}, by(all_gather)},
      {"dp4_ep2_etp2_nodes2", {.dp = 4, .ep = 2, .etp = 2}, by(hierarchical)},
      {"dp2_cp2_ep4", {.dp = 2, .cp = 2, .ep = 4}},
      {"dp2_cp2_tp2_ring", {.dp = 2, .cp = 2, .tp = 2}, form(ring)},
      {"cp2_tp2_heads_sequence", {.cp = 2, .tp = 2}, form(heads, true)},
      {"dp2_cp2_tp2_sequence_ep4_etp2_ring",
       {.dp = 2, .cp = 2, .tp = 2, .ep = 4, .etp = 2},
       form(ring, true)},
      {"dp2_cp3_tp2_sequence_ep4_ring",
       {.dp = 2, .cp = 3, .tp = 2, .ep = 4, .etp = 1},
       form(ring, true)},  // the views overlap
      {"pp2", {.pp = 2}},
      {"pp2_chunks2", {.pp = 2}, {}, 2},
      {"pp4", {.pp = 4}},
      {"pp2_loss_alone", {.pp = 2}, {}, 1, true},
      {"pp2_dp2_tp2", {.pp = 2, .dp = 2, .tp = 2}},
      {"pp2_tp2_sequence_chunks2_loss_alone", {.pp = 2, .tp = 2}, sequence, 2, true},
      {"pp2_cp2_tp2_sequence_gather", {.pp = 2, .cp = 2, .tp = 2}, form(gather, true)},
      {"pp2_dp2_ep2", {.pp = 2, .dp = 2, .ep = 2}},
      {"pp2_dp2_tp2_sequence_ep4_nodes2",
       {.pp = 2, .dp = 2, .tp = 2, .ep = 4, .etp = 1},
       by(hierarchical, true)},
      {"dp4_zero", {.dp = 4}, shards(ShardLevel::optimizer, 0)},
      {"dp4_zero_copies2", {.dp = 4}, shards(ShardLevel::optimizer, 2)},
      {"dp4_ep2_zero_copies2", {.dp = 4, .ep = 2}, shards(ShardLevel::optimizer, 2)},
      {"dp2_tp2_sequence_ep4_zero",
       {.dp = 2, .tp = 2, .ep = 4, .etp = 1},
       shards(ShardLevel::optimizer, 0, true)},
      {"pp2_dp2_full", {.pp = 2, .dp = 2}, shards(ShardLevel::full, 0)},
      {"pp2_dp4_tp2_sequence_chunks2_full_copies2",
       {.pp = 2, .dp = 4, .tp = 2},
       shards(ShardLevel::full, 2, true),
       2},
      {"dp4_tp2_sequence_full_copies2", {.dp = 4, .tp = 2}, shards(ShardLevel::full, 2, true)},
  };
}

bool divides_documents(const CheckedLayout& l) {
  return l.options.sequence_parallel || l.grid.cp > 1;
}

bool fits(const ModelConfig& m, const CheckedLayout& l) {
  const GridShape& g = l.grid;
  const Grid grid(g);
  const int tp = g.tp, cp = l.options.context == ContextForm::heads ? g.cp : l.options.context_inner,
            etp = grid.size(GridAxis::etp);
  const bool widths = l.options.sequence_parallel || tp == 1;  // of experts are sharded
  if (m.heads % (tp * cp) != 0 || m.kv_heads % (tp * cp) != 0 || m.mlp_hidden() % tp != 0) return false;
  if (m.layers < g.pp * l.chunks) return false;
  if (m.qk_norm_joint && tp > 1) return false;  // one norm of all heads: refused
  if (m.moe.experts == 0) return g.ep == 1 && etp == tp;
  return m.moe.experts % g.ep == 0 && m.moe.shared_hidden % tp == 0 && (!widths || m.moe.hidden % etp == 0);
}

DryRunLayout dry_run_layout(const CheckedLayout& l, const ModelConfig& m) {
  return {Grid(l.grid), l.options, stages_of(l, m)};
}

}  // namespace ingot::test
