// See dispatcher.h.
#include "nn/moe/dispatcher.h"

#include <algorithm>
#include <cmath>

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
  Value move_back(Context& c, const Value& sums_AD) override {
    return reduce_scatter_rows(c.tape, c.expert, sums_AD);
  }
  Value finish_back(Context&, const Value& sums_TD) override { return sums_TD; }
};

/// Rows that go from a rank to a given one when every token chooses k of the experts evenly, of which that rank holds `local`
/// (spec megatron-moe §3.6).
double even_rows(double tokens, double k, double experts, double local) {
  double stays_away = 1;
  for (double i = 0; i < k; ++i) stays_away *= std::max(0.0, experts - local - i) / (experts - i);
  return tokens * (1 - stays_away);
}

/// One way of a journey there and back: tokens are grouped by the ranks of a group, and each goes once to each of its ranks.
class Leg {
 public:
  Leg(Communicator& group, const GroupByRankAttr& places, double even_rows, const ReceiveBound& bound)
      : group_(&group),
        places_(places),
        even_rows_(even_rows),
        rows_out_(even_rows * (places.ranks - 1)),
        bound_(bound) {}

  /// `blocks`: see ops/group_by_rank; the tokens that arrive keep that order.
  Tokens prepare(Context& c, const Tokens& t, const Value& blocks = {}) {
    int64_t from_each = t.h_TD.dim(0);  // a token comes once
    if (bound_.factor > 0)
      from_each = std::min(from_each, static_cast<int64_t>(std::ceil(bound_.factor * even_rows_)));
    if (bound_.factor > 0 && bound_.drop) places_.bound = from_each;
    room_ = places_.ranks * from_each;
    sent_ = group_by_rank(c.tape, places_, t.h_TD, t.probs_TK, t.ids_TK, blocks);
    Tokens out{std::move(sent_.rows_SD), std::move(sent_.probs_SK), std::move(sent_.ids_SK)};
    return out;
  }
  Tokens move(Context& c, const Tokens& t) {
    slots_ = t.h_TD.dim(0);
    Exchanged e = exchange_rows(c.tape, {group_, room_, c.bf16_dispatch, rows_out_}, t.h_TD, t.probs_TK,
                                t.ids_TK, sent_.rows_per_rank);
    received_ = std::move(e.received);
    return {std::move(e.rows_AD), std::move(e.probs_AK), std::move(e.ids_AK)};
  }
  /// Choices that were not sent; absent where none can be.
  Value dropped() const { return places_.bound > 0 ? sent_.dropped : Value(); }
  /// How many tokens came from each rank.
  const Value& received() const { return received_; }
  Value move_back(Context& c, const Value& sums_AD) {
    return return_rows(c.tape, {group_, slots_, c.bf16_dispatch, rows_out_}, sums_AD, sent_.rows_per_rank,
                       received_);
  }
  Value finish_back(Context& c, const Value& parts_SD) {
    return unpermute(c.tape, c.precision().compute, parts_SD, sent_.row_TM, sent_.token_S);
  }

 private:
  Communicator* group_;
  GroupByRankAttr places_;
  int64_t room_ = 0, slots_ = 0;
  double even_rows_, rows_out_;
  ReceiveBound bound_;
  RankRows sent_;  ///< its maps; the rows go on with the journey
  Value received_;
};

class AllToAllDispatcher final : public Dispatcher {
 public:
  AllToAllDispatcher(const PermuteAttr& local, Leg leg) : Dispatcher(local), leg_(std::move(leg)) {}
  Tokens prepare(Context& c, const Tokens& t) override { return leg_.prepare(c, t); }
  Tokens move(Context& c, const Tokens& t) override { return leg_.move(c, t); }
  Value move_back(Context& c, const Value& sums_AD) override { return leg_.move_back(c, sums_AD); }
  Value finish_back(Context& c, const Value& parts_SD) override { return leg_.finish_back(c, parts_SD); }
  std::vector<Value> dropped() const override { return {leg_.dropped()}; }

 private:
  Leg leg_;
};

class HierarchicalDispatcher final : public Dispatcher {
 public:
  HierarchicalDispatcher(const PermuteAttr& local, Leg across, Leg inside)
      : Dispatcher(local), across_(std::move(across)), inside_(std::move(inside)) {}
  Tokens prepare(Context& c, const Tokens& t) override { return across_.prepare(c, t); }
  Tokens move(Context& c, const Tokens& t) override {
    const Tokens grouped = inside_.prepare(c, across_.move(c, t), across_.received());
    return inside_.move(c, grouped);
  }
  Value move_back(Context& c, const Value& sums_AD) override {
    return across_.move_back(c, inside_.finish_back(c, inside_.move_back(c, sums_AD)));
  }
  Value finish_back(Context& c, const Value& parts_SD) override { return across_.finish_back(c, parts_SD); }
  std::vector<Value> dropped() const override { return {across_.dropped(), inside_.dropped()}; }

 private:
  Leg across_, inside_;
};

}  // namespace

Permutation Dispatcher::finish(Context& c, const Tokens& a) const {
  return permute(c.tape, local_, a.h_TD, a.probs_TK, a.ids_TK);
}

Value Dispatcher::prepare_back(Context& c, const Value& out_RD, const Permutation& p) const {
  return unpermute(c.tape, c.precision().compute, out_RD, p.row_TK, p.token_R, p.offsets);
}

std::unique_ptr<Dispatcher> make_dispatcher(const Context& c, const DispatchSizes& sizes, bool pad) {
  const Placement& place = c.weights.placement();
  const int size = c.expert != nullptr ? c.expert->size() : 1, copies = place.expert_tensor_size;
  INGOT_CHECK(size == place.expert_size * copies,
              "weights are shared out over {} expert and {} expert tensor ranks, the group has {}",
              place.expert_size, copies, size);
  const int64_t experts = sizes.experts;
  if (experts % place.expert_size != 0)
    fail("{} experts cannot be shared out over {} expert ranks", experts, place.expert_size);
  const auto all = static_cast<int32_t>(experts), each = all / place.expert_size;
  const PermuteAttr local{place.expert_rank * each, each, sizes.bound * size, pad};
  if (size > 1 && c.dispatch == DispatchKind::all_gather && (c.receive.factor > 0 || c.bf16_dispatch))
    throw Error(c.bf16_dispatch
                    ? "a dispatch by all_gather brings rows in their own type, not in bf16"
                    : "a dispatch by all_gather brings all tokens to every rank: its room cannot be bounded",
                "choose all_to_all or hierarchical, or leave this option off");
  if (size == 1 || c.dispatch == DispatchKind::all_gather)
    return std::make_unique<AllGatherDispatcher>(local);
  const auto tokens = static_cast<double>(sizes.tokens), k = static_cast<double>(sizes.top_k);
  const int nodes = c.expert_across != nullptr ? c.expert_across->size() : 1, per_node = size / nodes;
  if (c.dispatch == DispatchKind::all_to_all || nodes == 1 || per_node == 1)
    return std::make_unique<AllToAllDispatcher>(
        local, Leg(*c.expert, {size, all, copies}, even_rows(tokens, k, all, each), c.receive));
  if (per_node % copies != 0)
    throw Error(
        fmt::format(
            "the {} ranks that share an expert's width do not fit on nodes with {} ranks of an expert group",
            copies, per_node),
        "choose fewer expert tensor ranks, or another form of dispatch");
  const int32_t on_node = all / nodes;
  Leg across(*c.expert_across, {nodes, all, 1}, even_rows(tokens, k, all, on_node), c.receive);
  Leg inside(*c.expert_inside, {per_node, on_node, copies, c.expert_across->rank() * on_node},
             even_rows(tokens * nodes, k, all, each), c.receive);
  return std::make_unique<HierarchicalDispatcher>(local, std::move(across), std::move(inside));
}

}  // namespace ingot
