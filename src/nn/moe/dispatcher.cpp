// See dispatcher.h.
#include "nn/moe/dispatcher.h"

#include <algorithm>

#include "ops/collective/exchange.h"
#include "ops/group_by_rank/group_by_rank.h"

namespace ingot {
namespace {

class AllGatherDispatcher final : public Dispatcher {
 public:
  explicit AllGatherDispatcher(const PermuteAttr& local) : Dispatcher(local) {}
  Tokens prepare(Context&, const Tokens& local) override { return local; }
  Tokens move(Context& c, const Tokens& t) override {
    return {all_gather_rows(c.tape, c.expert, t.h_TD), all_gather_rows(c.tape, c.expert, t.probs_TK),
            all_gather_rows(c.tape, c.expert, t.ids_TK)};
  }
  Value move_back(Context& c, const Value& sums_AD) override { return reduce_scatter_rows(c.tape, c.expert, sums_AD); }
  Value finish_back(Context&, const Value& sums_TD) override { return sums_TD; }
};

/// Rows that leave a rank when every token chooses k of the experts evenly, of which a rank holds `local`
/// (spec megatron-moe §3.6).
double expected_rows_out(double tokens, double k, double experts, double local, double ranks) {
  double stays_away = 1;  // from one given rank
  for (double i = 0; i < k; ++i) stays_away *= std::max(0.0, experts - local - i) / (experts - i);
  return tokens * (ranks - 1) * (1 - stays_away);
}

class AllToAllDispatcher final : public Dispatcher {
 public:
  AllToAllDispatcher(const PermuteAttr& local, const GroupByRankAttr& places) : Dispatcher(local), places_(places) {}

  Tokens prepare(Context& c, const Tokens& t) override {
    const int64_t tokens = t.h_TD.dim(0);
    room_ = places_.ranks * tokens;
    rows_out_ = expected_rows_out(static_cast<double>(tokens), static_cast<double>(t.ids_TK.dim(1)), places_.experts,
                                  places_.experts / (places_.ranks / places_.copies), places_.ranks);
    sent_ = group_by_rank(c.tape, places_, t.h_TD, t.probs_TK, t.ids_TK);
    Tokens out{std::move(sent_.rows_SD), std::move(sent_.probs_SK), std::move(sent_.ids_SK)};
    return out;
  }
  Tokens move(Context& c, const Tokens& t) override {
    slots_ = t.h_TD.dim(0);
    Exchanged e = exchange_rows(c.tape, {c.expert, room_, rows_out_}, t.h_TD, t.probs_TK, t.ids_TK, sent_.rows_per_rank);
    received_ = std::move(e.received);
    return {std::move(e.rows_AD), std::move(e.probs_AK), std::move(e.ids_AK)};
  }
  Value move_back(Context& c, const Value& sums_AD) override {
    return return_rows(c.tape, {c.expert, slots_, rows_out_}, sums_AD, sent_.rows_per_rank, received_);
  }
  Value finish_back(Context& c, const Value& parts_SD) override {
    return unpermute(c.tape, c.precision().compute, parts_SD, sent_.row_TM, sent_.token_S);
  }

 private:
  GroupByRankAttr places_;
  int64_t room_ = 0, slots_ = 0;
  double rows_out_ = 0;
  RankRows sent_;  ///< its maps; the rows go on with the journey
  Value received_;
};

}  // namespace

Permutation Dispatcher::finish(Context& c, const Tokens& a) const {
  return permute(c.tape, local_, a.h_TD, a.probs_TK, a.ids_TK);
}

Value Dispatcher::prepare_back(Context& c, const Value& out_RD, const Permutation& p) const {
  return unpermute(c.tape, c.precision().compute, out_RD, p.row_TK, p.token_R);
}

std::unique_ptr<Dispatcher> make_dispatcher(const Context& c, int64_t experts, int64_t bound, bool pad) {
  const Placement& place = c.weights.placement();
  const int size = c.expert != nullptr ? c.expert->size() : 1;
  INGOT_CHECK(size == place.expert_size * place.expert_tensor_size,
              "weights are shared out over {} expert and {} expert tensor ranks, the group has {}", place.expert_size,
              place.expert_tensor_size, size);
  if (experts % place.expert_size != 0) fail("{} experts cannot be shared out over {} expert ranks", experts, place.expert_size);
  const auto each = static_cast<int32_t>(experts / place.expert_size);
  const PermuteAttr local{place.expert_rank * each, each, bound * size, pad};
  if (size > 1 && c.dispatch == DispatchKind::all_to_all)
    return std::make_unique<AllToAllDispatcher>(
        local, GroupByRankAttr{size, static_cast<int32_t>(experts), place.expert_tensor_size});
  return std::make_unique<AllGatherDispatcher>(local);
}

}  // namespace ingot
