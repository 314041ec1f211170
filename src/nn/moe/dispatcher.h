// How tokens reach the ranks that hold their experts, and how the results come back. Communication and
// computation alternate in six stages, so that a schedule can hide the communication (Megatron Core's MoE
// token dispatcher, [Megatron-MoE] §3):
//
//   prepare_dispatch   order the tokens for the exchange
//   dispatch           communication: every token that the local experts may need arrives
//   finish_dispatch    order the rows by local expert (ops/permute)
//   prepare_combine    undo that order: per arrived token, the sum over its local experts
//   combine            communication: the sums return to the rank of their token
//   finish_combine     add each token's sums, in rank order
//
//   all_gather    Every rank gets all tokens of the group; tokens without a local expert get no row. A
//                 reduce-scatter returns the sums and adds them.
//   all_to_all    A token is sent once to each rank that holds one of its experts (ops/group_by_rank,
//                 ops/collective/exchange).
//   hierarchical  Two hops: a token is sent once to each node that holds one of its experts, to the rank with
//                 its own rank's position there, which passes it on inside the node. On the way back a node's
//                 sums are added before they leave it, so no payload crosses between nodes twice. Grouping
//                 inside the node is part of dispatch.
//
// Bits: arrived tokens are in the order of their rank, sums over a rank's experts in the order of the ids,
// sums over ranks in rank order. So the first two give the same bits, and so does the third while a token's
// experts lie on at most two ranks; sums of more are added node by node, and in bf16 a node's sum is rounded
// once more. A group of one rank sends nothing and records nothing. Every rank of the group has equally many
// tokens. Under expert tensor parallelism the group has, for each expert rank, the ranks that shard the width
// of its experts: a token goes to all of them, and each returns a partial sum.
//
// Shapes: T tokens of this rank, A arrived tokens, R rows of the local experts, K choices per token, D width,
// S slots of sent rows (ops/group_by_rank).
#pragma once
#include <memory>
#include <vector>

#include "nn/context.h"
#include "ops/permute/permute.h"

namespace ingot {

/// Tokens with their choices: h [T, D], probs [T, K], ids [T, K] (i32).
struct Tokens {
  Value h_TD, probs_TK, ids_TK;
};

/// Dispatch and combine of one layer's tokens; each stage is called once, in order.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  virtual Tokens prepare_dispatch(Context& c, const Tokens& local) = 0;
  virtual Tokens dispatch(Context& c, const Tokens& prepared) = 0;
  Permutation finish_dispatch(Context& c, const Tokens& arrived);
  Value prepare_combine(Context& c, const Value& out_RD, const Permutation& p) const;
  virtual Value combine(Context& c, const Value& sums_AD) = 0;
  virtual Value finish_combine(Context& c, const Value& parts_SD) = 0;
  /// After dispatch: how many choices exceeded a receive capacity, one value per hop that has one; some may
  /// be absent.
  virtual std::vector<Value> dropped() const { return {}; }
  /// How many rows an even routing brings to the local experts, times Context::imbalance; for costs of dry
  /// runs. After finish_dispatch.
  double expected_rows() const { return local_.expected; }

 protected:
  explicit Dispatcher(const PermuteAttr& local) : local_(local) {}
  /// The most choices that a receive capacity lets in; 0: no bound. After dispatch.
  virtual int64_t choice_capacity() const { return 0; }

 private:
  PermuteAttr local_;  ///< the local experts
};

/// What a dispatcher must know of the layer.
struct DispatchSizes {
  /// `tokens` of this rank.
  int64_t experts = 0, tokens = 0, top_k = 0;
  /// A token's experts are of `groups_kept` of so many groups of neighbours (ops/route).
  int64_t groups = 1, groups_kept = 1;
  /// The most rows that an expert gets from one rank; 0: no bound.
  int64_t bound = 0;
};

/// The dispatcher that the context asks for. `pad`: every expert gets exactly the bound. Throws Error where
/// the experts do not divide among the ranks, or the ranks among the nodes.
std::unique_ptr<Dispatcher> make_dispatcher(const Context& c, const DispatchSizes& sizes, bool pad = false);

}  // namespace ingot
