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
// all_gather  every rank gets all tokens of the group; tokens without a local expert get no row; a reduce-scatter brings
//             the sums back and adds them.
// all_to_all  a token goes once to each rank that holds one of its experts (ops/group_by_rank, ops/collective/exchange).
//
// Both give the same bits: arrived tokens are in the order of their rank, sums over a rank's experts are in the order of
// the ids, sums over ranks in rank order. A group of one rank moves nothing and records nothing: the local dispatcher.
// Every rank of the group has equally many tokens. Under expert tensor parallelism the group holds, expert rank by expert
// rank, the ranks that share an expert's width: a token goes to all of them, and their sums are parts like any other.
#pragma once
#include <memory>

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

 protected:
  explicit Dispatcher(const PermuteAttr& local) : local_(local) {}

 private:
  PermuteAttr local_;  ///< the local experts
};

/// The dispatcher that the context asks for. `bound`: most rows that an expert gets from one rank, 0: no bound; `pad`: it
/// gets exactly that many. Throws Error where the experts cannot be shared out evenly.
std::unique_ptr<Dispatcher> make_dispatcher(const Context& c, int64_t experts, int64_t bound = 0, bool pad = false);

}  // namespace ingot
