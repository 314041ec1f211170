// See dispatcher.h.
#include "nn/moe/dispatcher.h"

#include "ops/collective/collective.h"

namespace ingot {

Dispatcher::Dispatcher(const Context& c, int64_t experts, int64_t bound, bool pad) {
  const Placement& place = c.weights.placement();
  const int size = c.expert != nullptr ? c.expert->size() : 1;
  INGOT_CHECK(size == place.expert_size, "weights are shared out over {} expert ranks, the group has {}",
              place.expert_size, size);
  if (experts % size != 0) fail("{} experts cannot be shared out over {} expert ranks", experts, size);
  const auto each = static_cast<int32_t>(experts / size);
  local_ = {place.expert_rank * each, each, bound * size, pad};
}

Arrived Dispatcher::move(Context& c, const Arrived& local) const {
  return {all_gather_rows(c.tape, c.expert, local.h_TD), all_gather_rows(c.tape, c.expert, local.probs_TK),
          all_gather_rows(c.tape, c.expert, local.ids_TK)};
}

Permutation Dispatcher::finish(Context& c, const Arrived& a) const {
  return permute(c.tape, local_, a.h_TD, a.probs_TK, a.ids_TK);
}

Value Dispatcher::prepare_back(Context& c, const Value& out_RD, const Permutation& p) const {
  return unpermute(c.tape, c.precision().compute, out_RD, p.row_TK, p.token_R);
}

Value Dispatcher::move_back(Context& c, const Value& sums_TD) const {
  return reduce_scatter_rows(c.tape, c.expert, sums_TD);
}

}  // namespace ingot
