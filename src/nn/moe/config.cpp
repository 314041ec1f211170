// See moe_config.h.
#include "nn/moe/config.h"

namespace ingot {
namespace {

void validate_score(const MoeConfig& m, ConfigErrors& e) {
  if (m.score == RouteScore::softmax_last && m.top_k == 1)
    e.add("moe.score",
          "softmax over one chosen expert is always 1, so the router would learn nothing; use softmax_first");
  else if (m.normalize && m.top_k == 1)
    e.add("moe.normalize",
          "one weight divided by itself is always 1, so the router would learn nothing; use false");
  if (m.score == RouteScore::sigmoid && m.skip_class)
    e.add("moe.skip_class", "the skip class takes its share of a softmax; sigmoid scores have none to take");
}

void validate_groups(const MoeConfig& m, ConfigErrors& e) {
  if (m.experts % m.groups != 0) {
    e.add("moe.groups", "experts = {} cannot be cut into {} equal groups", m.experts, m.groups);
    return;
  }
  if (m.groups_kept > m.groups) {
    e.add("moe.groups_kept", "must be between 1 and groups = {}, found {}", m.groups, m.groups_kept);
    return;
  }
  if (m.groups_kept == m.groups) return;
  if (m.top_k % m.groups_kept != 0)
    e.add("moe.groups_kept",
          "top_k = {} must be a multiple of groups_kept = {}: a group counts by its top_k / groups_kept best",
          m.top_k, m.groups_kept);
  else if (m.top_k > m.groups_kept * (m.experts / m.groups))
    e.add("moe.groups_kept", "{} groups of {} experts hold {}, fewer than top_k = {}", m.groups_kept,
          m.experts / m.groups, m.groups_kept * (m.experts / m.groups), m.top_k);
}

void validate_capacity(const MoeConfig& m, ConfigErrors& e) {
  if (m.pad_to_capacity && m.capacity_factor == 0)
    e.add("moe.pad_to_capacity", "capacity_factor is 0; set it, for example 1.25");
}

/// Selections that look at the whole batch balance the load themselves.
void validate_selection(const MoeConfig& m, ConfigErrors& e) {
  if (m.selection == AssignRule::top_k) return;
  const bool sinkhorn = m.selection == AssignRule::sinkhorn;
  const char* name = sinkhorn ? "sinkhorn" : "expert_choice";
  if (m.aux_coefficient != 0) e.add("moe.aux_coefficient", "{} balances the load itself; use 0", name);
  if (m.aux_scope == AuxScope::last_step) e.add("moe.aux_scope", "{} has no balance loss; use global", name);
  if (m.sequence_aux_coefficient != 0)
    e.add("moe.sequence_aux_coefficient", "{} balances the load itself; use 0", name);
  if (m.balance != BalanceRule::none) e.add("moe.balance", "{} balances the load itself; use none", name);
  if (m.groups_kept != m.groups)
    e.add("moe.groups_kept", "{} chooses among all experts; use groups = {}", name, m.groups);
  if (m.skip_class) e.add("moe.skip_class", "{} knows no skip class; use false", name);
  if (m.normalize) e.add("moe.normalize", "{} takes the weights as they are; use false", name);
  if (sinkhorn && m.capacity_factor != 0)
    e.add("moe.capacity_factor",
          "sinkhorn evens the load out instead of cutting it; use 0, or selection = top_k");
  if (sinkhorn && m.score != (m.top_k == 1 ? RouteScore::sigmoid : RouteScore::softmax_first))
    e.add("moe.score", "sinkhorn's weights are {} for top_k = {}", m.top_k == 1 ? "sigmoid" : "softmax_first",
          m.top_k);
  if (!sinkhorn && m.capacity_factor == 0)
    e.add("moe.capacity_factor", "is what an expert takes, times its even share; set it, for example 1.0");
  if (!sinkhorn && m.score == RouteScore::softmax_last)
    e.add("moe.score", "expert_choice compares the tokens' scores; use softmax_first or sigmoid");
}

}  // namespace

void validate_moe(const MoeConfig& m, int64_t layers, ConfigErrors& e) {
  if (m.experts == 0) return;
  if (m.top_k > m.experts)
    return e.add("moe.top_k", "must be between 1 and experts = {}, found {}", m.experts, m.top_k);
  if (m.hidden < 1) e.add("moe.hidden", "must be at least 1, found {}", m.hidden);
  if (m.first_dense > layers)
    e.add("moe.first_dense", "must be between 0 and layers = {}, found {}", layers, m.first_dense);
  validate_score(m, e);
  validate_groups(m, e);
  validate_capacity(m, e);
  validate_selection(m, e);
}

}  // namespace ingot
