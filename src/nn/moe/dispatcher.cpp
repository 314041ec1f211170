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
  Tokens prepare_dispatch(Context&, const Tokens& local) override { return local; }
  Tokens dispatch(Context& c, const Tokens& t) override {
    return {all_gather_rows(c.tape, c.expert, t.h_TD), all_gather_rows(c.tape, c.expert, t.probs_TK),
            all_gather_rows(c.tape, c.expert, t.ids_TK)};
  }
  Value combine(Context& c, const Value& sums_AD) override {
    return reduce_scatter_rows(c.tape, c.expert, sums_AD);
  }
  Value finish_combine(Context&, const Value& sums_TD) override { return sums_TD; }
};

/// In how many ways k of n can be chosen.
double binomial(int64_t n, int64_t k) {
  if (k < 0 || k > n) return 0;
  double ways = 1;
  for (int64_t i = 0; i < k; ++i) ways *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  return ways;
}

/// In how many ways m of n can be chosen, as a share of the ways to choose m of `of`.
double chosen_share(int64_t n, int64_t of, int64_t m) {
  double share = 1;
  for (int64_t i = 0; i < m; ++i) share *= static_cast<double>(std::max<int64_t>(0, n - i)) / (of - i);
  return share;
}

/// The expected number of `tokens` that choose at least one of `local` neighbouring experts, the first of
/// them also the first of a group, in a routing that is even among groups and among the experts of those
/// that a token keeps.
double balanced_rows(const DispatchSizes& s, int64_t tokens, int64_t local) {
  const int64_t group = s.experts / s.groups, whole = local / group, rest = local % group;
  const int64_t others = s.groups - whole - (rest > 0 ? 1 : 0), open = s.groups_kept * group;
  const double ways = binomial(s.groups, s.groups_kept);
  double elsewhere = 0;
  for (int64_t kept = 0; kept <= std::min(whole, s.groups_kept); ++kept)
    for (int64_t part = 0; part <= (rest > 0 ? 1 : 0); ++part)
      elsewhere += binomial(whole, kept) * binomial(others, s.groups_kept - kept - part) / ways *
                   chosen_share(open - kept * group - part * rest, open, s.top_k);
  return static_cast<double>(tokens) * (1 - elsewhere);
}

/// A capacity per sender: a multiple of the balanced load.
int64_t capacity_of(double factor, double balanced) {
  return static_cast<int64_t>(std::ceil(factor * balanced));
}

/// One hop: tokens are grouped by the ranks of a group, each is sent once to each of its ranks, and its sums
/// return.
class Hop {
 public:
  /// `balanced_rows`, `balanced_choices`: from one sender to one rank in an even routing.
  Hop(Communicator& group, const GroupByRankAttr& grouping, double balanced_rows, double balanced_choices,
      const ReceiveCapacity& receive)
      : group_(&group),
        grouping_(grouping),
        balanced_rows_(balanced_rows),
        choices_from_each_(capacity_of(receive.factor, balanced_choices)),
        rows_out_(balanced_rows * (grouping.ranks - 1)),
        receive_(receive) {}

  /// `blocks`: see ops/group_by_rank; arrived tokens keep that order.
  Tokens prepare_dispatch(Context& c, const Tokens& t, const Value& blocks = {}) {
    int64_t from_each = t.h_TD.dim(0);  // each sender has as many tokens, and sends each once
    if (receive_.factor > 0) from_each = std::min(from_each, capacity_of(receive_.factor, balanced_rows_));
    if (receive_.factor > 0 && receive_.drop)
      grouping_.bound = from_each, grouping_.choices = choices_from_each_;
    capacity_ = grouping_.ranks * from_each;
    sent_ = group_by_rank(c.tape, grouping_, t.h_TD, t.probs_TK, t.ids_TK, blocks);
    Tokens out{std::move(sent_.rows_SD), std::move(sent_.probs_SK), std::move(sent_.ids_SK)};
    return out;
  }
  Tokens dispatch(Context& c, const Tokens& t) {
    slots_ = t.h_TD.dim(0);
    Exchanged e = exchange_rows(c.tape, {group_, capacity_, c.bf16_dispatch, rows_out_}, t.h_TD, t.probs_TK,
                                t.ids_TK, sent_.rows_per_rank);
    received_ = std::move(e.received);
    return {std::move(e.rows_AD), std::move(e.probs_AK), std::move(e.ids_AK)};
  }
  /// How many choices were not sent; absent without a capacity.
  Value dropped() const { return grouping_.bound > 0 ? sent_.dropped : Value(); }
  /// The most choices that come from all; 0: no bound.
  int64_t choice_capacity() const { return grouping_.ranks * choices_from_each_; }
  /// How many tokens came from each rank.
  const Value& received() const { return received_; }
  Value combine(Context& c, const Value& sums_AD) {
    return return_rows(c.tape, {group_, slots_, c.bf16_dispatch, rows_out_}, sums_AD, sent_.rows_per_rank,
                       received_);
  }
  Value finish_combine(Context& c, const Value& parts_SD) {
    return unpermute(c.tape, c.precision().compute, parts_SD, sent_.row_TM, sent_.token_S);
  }

 private:
  Communicator* group_;
  GroupByRankAttr grouping_;
  int64_t capacity_ = 0, slots_ = 0;  ///< rows received at most; rows of the send buffer
  double balanced_rows_;
  int64_t choices_from_each_;
  double rows_out_;
  ReceiveCapacity receive_;
  RankRows sent_;  ///< its maps; the rows themselves were passed on
  Value received_;
};

class AllToAllDispatcher final : public Dispatcher {
 public:
  AllToAllDispatcher(const PermuteAttr& local, Hop hop) : Dispatcher(local), hop_(std::move(hop)) {}
  Tokens prepare_dispatch(Context& c, const Tokens& t) override { return hop_.prepare_dispatch(c, t); }
  Tokens dispatch(Context& c, const Tokens& t) override { return hop_.dispatch(c, t); }
  Value combine(Context& c, const Value& sums_AD) override { return hop_.combine(c, sums_AD); }
  Value finish_combine(Context& c, const Value& parts_SD) override {
    return hop_.finish_combine(c, parts_SD);
  }
  std::vector<Value> dropped() const override { return {hop_.dropped()}; }

 private:
  int64_t choice_capacity() const override { return hop_.choice_capacity(); }
  Hop hop_;
};

class HierarchicalDispatcher final : public Dispatcher {
 public:
  HierarchicalDispatcher(const PermuteAttr& local, Hop across, Hop inside)
      : Dispatcher(local), across_(std::move(across)), inside_(std::move(inside)) {}
  Tokens prepare_dispatch(Context& c, const Tokens& t) override { return across_.prepare_dispatch(c, t); }
  Tokens dispatch(Context& c, const Tokens& t) override {
    const Tokens grouped = inside_.prepare_dispatch(c, across_.dispatch(c, t), across_.received());
    return inside_.dispatch(c, grouped);
  }
  Value combine(Context& c, const Value& sums_AD) override {
    return across_.combine(c, inside_.finish_combine(c, inside_.combine(c, sums_AD)));
  }
  Value finish_combine(Context& c, const Value& parts_SD) override {
    return across_.finish_combine(c, parts_SD);
  }
  std::vector<Value> dropped() const override { return {across_.dropped(), inside_.dropped()}; }

 private:
  int64_t choice_capacity() const override { return inside_.choice_capacity(); }
  Hop across_, inside_;
};

}  // namespace

Permutation Dispatcher::finish_dispatch(Context& c, const Tokens& a) {
  const int64_t tokens = a.ids_TK.dim(0), k = a.ids_TK.dim(1);
  // A token chooses an expert once.
  if (k > local_.experts) local_.capacity = tokens * local_.experts;
  if (const int64_t most = choice_capacity();
      most > 0 && most < tokens * std::min<int64_t>(k, local_.experts))
    local_.capacity = most;
  return permute(c.tape, local_, a.h_TD, a.probs_TK, a.ids_TK);
}

Value Dispatcher::prepare_combine(Context& c, const Value& out_RD, const Permutation& p) const {
  return unpermute(c.tape, c.precision().compute, out_RD, p.row_TK, p.token_R, p.offsets, local_.expected);
}

std::unique_ptr<Dispatcher> make_dispatcher(const Context& c, const DispatchSizes& sizes, bool pad) {
  const Placement& placement = c.weights.placement();
  const int size = c.expert != nullptr ? c.expert->size() : 1, copies = placement.expert_tensor_size;
  INGOT_CHECK(size == placement.expert_size * copies,
              "weights are sharded over {} expert and {} expert tensor ranks, the group has {}",
              placement.expert_size, copies, size);
  const int64_t experts = sizes.experts;
  if (experts % placement.expert_size != 0)
    fail("{} experts do not divide among {} expert ranks", experts, placement.expert_size);
  const auto all = static_cast<int32_t>(experts), each = all / placement.expert_size;
  PermuteAttr local{placement.expert_rank * each, each, sizes.bound * size, pad};
  if (size > 1) local.expected = c.imbalance * static_cast<double>(copies * sizes.tokens * sizes.top_k);
  if (size > 1 && c.dispatch == DispatchKind::all_gather && (c.receive.factor > 0 || c.bf16_dispatch))
    throw Error(c.bf16_dispatch
                    ? "a dispatch by all_gather sends rows in their own type, not in bf16"
                    : "a dispatch by all_gather sends all tokens to every rank: it has no capacity",
                "choose all_to_all or hierarchical, or leave this option off");
  if (size == 1 || c.dispatch == DispatchKind::all_gather)
    return std::make_unique<AllGatherDispatcher>(local);
  const int nodes = c.expert_across != nullptr ? c.expert_across->size() : 1, per_node = size / nodes;
  const auto choices = static_cast<double>(sizes.tokens * sizes.top_k);
  if (c.dispatch == DispatchKind::all_to_all || nodes == 1 || per_node == 1)
    return std::make_unique<AllToAllDispatcher>(
        local, Hop(*c.expert, {size, all, copies}, balanced_rows(sizes, sizes.tokens, each),
                   choices / placement.expert_size, c.receive));
  if (per_node % copies != 0)
    throw Error(
        fmt::format(
            "the {} ranks that share an expert's width do not fit on nodes with {} ranks of an expert group",
            copies, per_node),
        "choose fewer expert tensor ranks, or another form of dispatch");
  const int32_t on_node = all / nodes;
  Hop across(*c.expert_across, {nodes, all, 1}, balanced_rows(sizes, sizes.tokens, on_node), choices / nodes,
             c.receive);
  Hop inside(*c.expert_inside, {per_node, on_node, copies, c.expert_across->rank() * on_node},
             balanced_rows(sizes, sizes.tokens * nodes, each), choices * nodes / placement.expert_size,
             c.receive);
  return std::make_unique<HierarchicalDispatcher>(local, std::move(across), std::move(inside));
}

}  // namespace ingot
