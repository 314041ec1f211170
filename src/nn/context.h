// What a forward pass needs besides its input: the tape, the weights, where documents begin, and the inputs that come
// from outside the step (router biases and loads, forced routes). One object per call of a model.
#pragma once
#include <map>

#include "base/enum.h"
#include "comm/communicator.h"
#include "nn/weights.h"
#include "ops/sequence/context_rows.h"
#include "tape/tape.h"

namespace ingot {

/// Per-layer inputs of the routers. Undefined tensors: absent.
struct RouterInputs {
  Tensor bias_E;         ///< f32: selection bias
  Tensor load_E;         ///< f32: last step's load fractions (step-lagged balance loss)
  Tensor forced_ids_TK;  ///< i32: routes to replay
};

/// How tokens reach the ranks of their experts (nn/moe/dispatcher.h).
enum class DispatchKind : uint8_t { all_gather, all_to_all, hierarchical };
constexpr auto enum_names(DispatchKind) {
  return names_in_order<DispatchKind>("all_gather", "all_to_all", "hierarchical");
}

/// Rows that a rank holds room for in an all-to-all or hierarchical dispatch: `factor` times those of an even routing; 0: as
/// many as any routing brings. Rows beyond it are an Error; with `drop` a rank sends each other one its even share of the room at
/// most, and the choices of later tokens count nothing, as if they had weight 0.
struct ReceiveBound {
  double factor = 0;
  bool drop = false;
};

/// How attention sees whole sequences of which context ranks have chunks: all rows of some heads (ops/context/heads.h), or
/// all keys and values, gathered or passed around (ops/context/context_attention.h). In a mix of both, neighbours exchange
/// heads, and keys and values of these travel among the groups of neighbours.
enum class ContextForm : uint8_t { heads, gather, ring };
constexpr auto enum_names(ContextForm) {
  return names_in_order<ContextForm>("heads", "gather", "ring");
}

struct Context {
  Tape& tape;
  const WeightSet& weights;
  const BatchLayout* rows =
      nullptr;        ///< documents or cached sequences; must outlive the tape; not used on context ranks
  Value positions_T;  ///< i32
  std::map<int64_t, RouterInputs> routers = {};  ///< by layer
  bool absorb_latents =
      false;  ///< latent attention over cached sequences: in the latent space (other roundings)
  Communicator* tensor =
      nullptr;  ///< ranks that share the cut of products; nullptr: weights are not cut on this axis
  /// Ranks that share out the experts and, next to each other, the widths of each; all have other tokens, equally many.
  Communicator* expert = nullptr;
  /// Of a hierarchical dispatch: ranks of `expert` with the same place on other nodes, and those on this node.
  Communicator *expert_across = nullptr, *expert_inside = nullptr;
  bool sequence_parallel = false;   ///< outside of tensor regions a tensor rank has 1 / size of the rows
  Communicator* context = nullptr;  ///< ranks that share each sequence; ids and positions are this rank's
  /// Of these: neighbours that exchange heads, and ranks with the same place among other neighbours.
  Communicator *context_inner = nullptr, *context_outer = nullptr;
  const ContextRows* context_rows =
      nullptr;  ///< its chunks, where the group has several ranks; must outlive the tape
  ContextForm context_form = ContextForm::heads;
  DispatchKind dispatch = DispatchKind::all_to_all;
  ReceiveBound receive = {};
  bool bf16_dispatch = false;  ///< rows in f32 travel to experts and back in bf16; not by all_gather

  Precision precision() const { return weights.precision(); }
  /// A parameter's compute value, or an absent one for index -1.
  Value param(int index) const {
    return index < 0 ? Value() : tape.parameter(index, weights.compute(index), weights.gatherer());
  }
  Value leaf_or_absent(const Tensor& t) const { return t.defined() ? tape.leaf(t) : Value(); }
};

}  // namespace ingot
