// How rows reach the ranks that hold their experts, and come back. The contract (spec megatron-moe §1.3): stages that
// move data compute nothing, stages that compute do not communicate, so that a schedule can hide the moves.
//
//   move          communication: what the local experts may need arrives
//   finish        order the rows by local expert (ops/permute)
//   prepare_back  undo the order: per arrived token, the sum over its local experts
//   move_back     communication: each token's parts return to its rank and are added, in rank order
//
// This is the all-gather dispatcher: `move` brings all tokens of the expert group to each of its ranks, tokens without a
// local expert get no row, and `move_back` is a reduce-scatter. Every rank of the group has equally many tokens. A group
// of one rank moves nothing and records nothing: the local dispatcher. The all-to-all dispatcher comes later.
#pragma once
#include "nn/context.h"
#include "ops/permute/permute.h"

namespace ingot {

/// Tokens with their choices.
struct Arrived {
  Value h_TD, probs_TK, ids_TK;
};

class Dispatcher {
 public:
  /// `bound`: most rows that an expert gets from one rank, 0: no bound; `pad`: it gets exactly that many. Throws Error
  /// where the experts cannot be shared out evenly.
  Dispatcher(const Context& c, int64_t experts, int64_t bound = 0, bool pad = false);
  Arrived move(Context& c, const Arrived& local) const;
  Permutation finish(Context& c, const Arrived& arrived) const;
  Value prepare_back(Context& c, const Value& out_RD, const Permutation& p) const;
  Value move_back(Context& c, const Value& sums_TD) const;

 private:
  PermuteAttr local_;
};

}  // namespace ingot
