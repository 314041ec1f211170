// How rows reach the ranks that hold their experts, and come back. The contract (spec megatron-moe §1.3): stages that
// move data compute nothing, stages that compute do not communicate, so that a schedule can hide the moves.
//
//   prepare       order the tokens for the move
//   move          communication: what the local experts may need arrives
//   finish        order the rows by local expert (ops/permute)
//   prepare_back  undo that order: per arrived token, the sum over its local experts
//   move_back     communication: the sums return to their token's rank
//   finish_back   each token's sums are added, in rank order
//
// all_gather    every rank gets all tokens of the group; tokens without a local expert get no row; a reduce-scatter brings
//               the sums back and adds them.
// all_to_all    a token goes once to each rank that holds one of its experts (ops/group_by_rank, ops/collective/exchange).
// hierarchical  a token goes once to each node that holds one of its experts, to the rank with its own rank's place there, and
//               that one passes it on inside the node. On the way back a node's sums are added before they leave it. So no
//               payload crosses between nodes twice. The grouping inside the node belongs to the moves (spec DS-5).
//
// Arrived tokens are in the order of their rank, sums over a rank's experts are in the order of the ids, sums over ranks in
// rank order. So the first two give the same bits, and so does the third while a token's experts lie on at most two ranks;
// sums of more are added node by node, and in bf16 a node's sum is rounded once more. A group of one rank moves nothing and
// records nothing: the local dispatcher. Every rank of the group has equally many tokens. Under expert tensor parallelism the
// group holds, expert rank by expert rank, the ranks that share an expert's width: a token goes to all of them, and their sums
// are parts like any other.
#pragma once
#include <memory>
#include <vector>

#include "nn/context.h"
#include "ops/permute/permute.h"

namespace ingot {

/// Tokens with their choices.
struct Tokens {
  Value h_TD, probs_TK, ids_TK;
};

/// The journey of one layer's tokens; its stages are called once each, in order.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  virtual Tokens prepare(Context& c, const Tokens& local) = 0;
  virtual Tokens move(Context& c, const Tokens& prepared) = 0;
  Permutation finish(Context& c, const Tokens& arrived) const;
  Value prepare_back(Context& c, const Value& out_RD, const Permutation& p) const;
  virtual Value move_back(Context& c, const Value& sums_AD) = 0;
  virtual Value finish_back(Context& c, const Value& parts_SD) = 0;
  /// After move: how many choices were dropped for want of room (ReceiveBound), where any can be; some may be absent.
  virtual std::vector<Value> dropped() const { return {}; }

 protected:
  explicit Dispatcher(const PermuteAttr& local) : local_(local) {}

 private:
  PermuteAttr local_;  ///< the local experts
};

/// What a dispatcher must know of the layer.
struct DispatchSizes {
  int64_t experts = 0, tokens = 0, top_k = 0;  ///< tokens of this rank
  int64_t bound = 0;                           ///< most rows that an expert gets from one rank; 0: no bound
};

/// The dispatcher that the context asks for. `pad`: every expert gets exactly the bound. Throws Error where the experts cannot
/// be shared out evenly, or not over nodes.
std::unique_ptr<Dispatcher> make_dispatcher(const Context& c, const DispatchSizes& sizes, bool pad = false);

}  // namespace ingot
