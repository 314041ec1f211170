// See axis_rules.h: the table.
#include "ops/axis_rules.h"

#include <map>

#include "ops/activation/activation.h"
#include "ops/add/add.h"
#include "ops/add_norm/add_norm.h"
#include "ops/assign/assign.h"
#include "ops/capacity/capacity.h"
#include "ops/cca/cca.h"
#include "ops/collective/collective.h"
#include "ops/collective/exchange.h"
#include "ops/collective/vocabulary.h"
#include "ops/context/context_attention.h"
#include "ops/context/heads.h"
#include "ops/embedding/embedding.h"
#include "ops/group_by_rank/group_by_rank.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/head/head.h"
#include "ops/linear/linear.h"
#include "ops/low_rank/low_rank.h"
#include "ops/mix/mix.h"
#include "ops/mla/mla.h"
#include "ops/permute/permute.h"
#include "ops/qk_prepare/qk_prepare.h"
#include "ops/route/route.h"
#include "ops/route/sequence_balance.h"
#include "ops/shard_index/shard_index.h"

namespace ingot {
namespace {

using enum AxisType;
using enum AxisRule::On;

const Communicator* of_collective(const void* attr) {
  return static_cast<const CollectiveAttr*>(attr)->comm;
}
const Communicator* of_exchange(const void* attr) {
  return static_cast<const ExchangeAttr*>(attr)->comm;
}
const Communicator* of_context(const void* attr) {
  return static_cast<const ContextAttr*>(attr)->comm;
}
const Communicator* of_heads(const void* attr) {
  return static_cast<const HeadsAttr*>(attr)->context.comm;
}
const Communicator* of_attention(const void* attr) {
  return static_cast<const ContextAttentionAttr*>(attr)->context.comm;
}

constexpr AxisTypeSet kAll{replicate, shared, rows, halo, parts, partial};
/// Of ops that add up: a summand in, a summand out.
constexpr AxisTypeSet kSums{replicate, shared, rows, partial};
/// Of ops that look along sequences, head by head.
constexpr AxisTypeSet kHeads{replicate, shared, rows, parts};

AxisRule collective(AxisChange change, const Communicator* (*group)(const void*) = of_collective) {
  return {.passes = kAll, .on = group_axes, .change = change, .group = group};
}
AxisRule among_sequences(AxisChange change, const Communicator* (*group)(const void*)) {
  return {.passes = kHeads, .along_sequence = true, .on = group_axes, .change = change, .group = group};
}

std::map<const Op*, AxisRule> make_table() {
  constexpr AxisChange to_parts{shared, parts}, own_parts{parts, parts}, to_sum{parts, partial};
  return {
      // Products: a weight cut along its outputs, or along what is summed.
      {&linear_op(),
       {.passes = kRowwise, .cuts = {{1, 0, to_parts}, {1, 1, to_sum}, {2, 0, to_parts}}, .addend = 2}},
      {&grouped_linear_op(),
       {.passes = kRowwise, .cuts = {{1, 0, own_parts}, {1, 1, to_parts}, {1, 2, to_sum}}}},
      {&low_rank_op(), {.passes = kSums, .cuts = {{2, 0, own_parts}}}},
      {&embedding_op(), {.passes = kRowwise, .cuts = {{1, 0, to_sum}, {1, 1, to_parts}}}},
      {&head_op(), {.passes = kRowwise, .cuts = {{1, 0, to_parts}}}},
      // Element by element, head by head, row by row.
      {&activation_op(), {.passes = kElementwise}},
      {&add_op(), {.passes = kAll}},
      {&mix_op(), {.passes = kElementwise}},
      {&qk_prepare_op(), {.passes = kElementwise}},
      {&mla_pack_op(), {.passes = kElementwise}},
      {&add_norm_op(), {.passes = kRowwise}},
      {&mla_latents_op(), {.passes = kRowwise}},
      // Along sequences.
      {&attention_op(), {.passes = kHeads, .along_sequence = true}},
      {&mla_cached_op(), {.passes = kHeads, .along_sequence = true, .cuts = {{3, 0, own_parts}}}},
      {&cca_op(),
       {.passes = {replicate, shared, rows, halo},
        .along_sequence = true,
        .cuts =
            {{2, 0, own_parts}, {3, 0, own_parts}, {4, 0, own_parts}, {5, 0, own_parts}, {6, 0, own_parts}}}},
      {&sequence_balance_op(), {.passes = kRowwise, .along_sequence = true}},
      // Routing. A rank's choices are those of its own rows (docs/parallel.md, Statistics).
      {&route_op(), {.passes = kRowwise, .counts = {2}}},
      {&assign_op(), {.passes = kRowwise}},
      {&capacity_op(), {.passes = kRowwise}},
      {&group_by_rank_op(), {.passes = kRowwise}},
      {&permute_op(), {.passes = kRowwise, .on = experts, .change = to_parts}},
      {&unpermute_op(), {.passes = kSums, .on = values, .change = to_sum}},
      // What tensor ranks have of data that all of them have.
      {&shard_index_op(), {.passes = kRowwise, .on = tensor, .change = {replicate, parts}}},
      {&shard_rows_op(), {.passes = kRowwise, .on = tensor, .change = {replicate, rows}}},
      // Collectives.
      {&copy_to_axis_op(), collective({replicate, shared})},
      {&reduce_from_axis_op(), collective({partial, replicate})},
      {&all_gather_rows_op(), collective({rows, shared})},
      {&reduce_scatter_rows_op(), collective({partial, rows})},
      {&exchange_rows_op(), collective({rows, shared}, of_exchange)},
      {&return_rows_op(), collective({partial, rows}, of_exchange)},
      {&merge_vocabulary_op(),
       {.passes = kRowwise, .on = group_axes, .change = {parts, replicate}, .group = of_collective}},
      {&with_halo_op(), among_sequences({rows, halo}, of_context)},
      {&without_halo_op(), among_sequences({halo, rows}, of_context)},
      {&rows_to_heads_op(), {.passes = kHeads, .on = group_axes, .change = {rows, parts}, .group = of_heads}},
      {&heads_to_rows_op(), {.passes = kHeads, .on = group_axes, .change = {parts, rows}, .group = of_heads}},
      {&context_attention_op(), among_sequences({rows, rows}, of_attention)},
  };
}

std::map<const Op*, AxisRule>& table() {
  static std::map<const Op*, AxisRule> rules = make_table();
  return rules;
}

}  // namespace

AxisType cotangent_of(AxisType type) {
  switch (type) {
    case replicate:
    case partial:
      return replicate;
    case shared:
    case halo:
      return partial;
    case rows:
    case parts:
      return type;
  }
  return type;
}

bool needs_transfer(const AxisChange& c) {
  if (c.from == c.to || c.to == partial) return false;  // an own part is a summand too
  return c.from != replicate && c.from != shared && !(c.from == halo && c.to == rows);
}

const AxisRule* axis_rule(const Op& op) {
  const auto row = table().find(&op);
  return row != table().end() ? &row->second : nullptr;
}

void set_axis_rule(const Op& op, AxisRule rule) {
  if (!table().emplace(&op, std::move(rule)).second)
    fail("op '{}' has a row in the table of axis rules already", op.name);
}

}  // namespace ingot
