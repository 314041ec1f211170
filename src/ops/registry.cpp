// See registry.h. An op of this tree is one line in the list below.
#include "ops/registry.h"

#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "ops/activation/activation.h"
#include "ops/add/add.h"
#include "ops/add_norm/add_norm.h"
#include "ops/assign/assign.h"
#include "ops/attention/attention.h"
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
#include "ops/mla_cached/mla_cached.h"
#include "ops/permute/permute.h"
#include "ops/qk_prepare/qk_prepare.h"
#include "ops/route/route.h"
#include "ops/sequence_balance/sequence_balance.h"
#include "ops/shard_index/shard_index.h"

namespace ingot {

namespace {

std::vector<const Op*>& list() {
  static std::vector<const Op*> ops = {
      &activation_op(),
      &add_op(),
      &add_norm_op(),
      &attention_op(),
      &cca_op(),
      &embedding_op(),
      &grouped_linear_op(),
      &head_op(),
      &linear_op(),
      &low_rank_op(),
      &mix_op(),
      &mla_cached_op(),
      &mla_latents_op(),
      &mla_pack_op(),
      &permute_op(),
      &qk_prepare_op(),
      &route_op(),
      &sequence_balance_op(),
      &capacity_op(),
      &assign_op(),
      &unpermute_op(),
      &copy_to_axis_op(),
      &reduce_from_axis_op(),
      &all_gather_rows_op(),
      &reduce_scatter_rows_op(),
      &group_by_rank_op(),
      &exchange_rows_op(),
      &return_rows_op(),
      &merge_vocabulary_op(),
      &shard_index_op(),
      &shard_rows_op(),
      &with_halo_op(),
      &without_halo_op(),
      &rows_to_heads_op(),
      &heads_to_rows_op(),
      &context_attention_op(),
  };
  return ops;
}

}  // namespace

const std::vector<const Op*>& all_ops() {
  return list();
}

void register_op(const Op& op) {
  for (const Op* known : list())
    if (std::string_view(known->name) == op.name) fail("an op named '{}' exists already", op.name);
  list().push_back(&op);
}

std::string kernel_set_fingerprint() {
  // Results do not depend on the instruction set (numerics rule 2), so the set of kernels alone decides the
  // bits.
  std::string text = "ingot-kernels-1;";
  for (const Op* op : all_ops()) {
    text += op->name;
    for (const Kernel& k : op->kernels) text += fmt::format(",{}", k.name);
    text += ';';
  }
  return fmt::format("{:016x}", hash64(text));
}

}  // namespace ingot
