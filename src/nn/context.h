// The inputs of a forward pass besides its tokens: tape, weights, document boundaries, the groups of ranks
// that it communicates with, and per-layer router inputs. One object per call of a model; not thread-safe.
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
  Tensor bias;           ///< f32: selection bias of the experts, or of all classes (ops/route/route.h)
  Tensor load_E;         ///< f32: last step's load fractions (step-lagged balance loss)
  Tensor forced_ids_TK;  ///< i32: routes to replay
  /// AuxScope::global, f32 [E + 1]: choices of each expert in the earlier micro-batches of the step, on all
  /// ranks, and how many micro-batches made them.
  Tensor earlier_E1;
};

/// How tokens reach the ranks of their experts (nn/moe/dispatcher.h).
enum class DispatchKind : uint8_t { all_gather, all_to_all, hierarchical };
constexpr auto enum_names(DispatchKind) {
  return names_in_order<DispatchKind>("all_gather", "all_to_all", "hierarchical");
}

/// Receive-buffer capacity of an all-to-all or hierarchical dispatch, as a multiple of the balanced load; 0:
/// unlimited. Overflow is an Error, or with `drop` each sender is capped at capacity / ranks and later
/// choices get weight 0.
struct ReceiveCapacity {
  double factor = 0;
  bool drop = false;
};

/// How attention sees whole sequences of which context ranks have chunks: all rows of some heads ([Ulysses],
/// ops/context/heads.h), or all keys and values, gathered or passed around a ring
/// (ops/context/context_attention.h). With several inner groups, neighbours exchange heads and the other
/// forms run between the inner groups.
enum class ContextForm : uint8_t { heads, gather, ring };
constexpr auto enum_names(ContextForm) {
  return names_in_order<ContextForm>("heads", "gather", "ring");
}

struct Context {
  Tape& tape;
  const WeightSet& weights;
  /// Documents or cached sequences; must outlive the tape; unused on context ranks.
  const BatchLayout* rows = nullptr;
  Value positions_T;                             ///< i32
  std::map<int64_t, RouterInputs> routers = {};  ///< by layer
  /// Latent attention over cached sequences computes in the latent space (other rounding).
  bool absorb_latents = false;

  // Groups; nullptr: this rank is alone on the axis.

  /// Ranks that shard the products of a layer.
  Communicator* tensor = nullptr;
  /// Ranks whose routers see other tokens of the step.
  Communicator* tokens = nullptr;
  /// Ranks that shard the experts and, as neighbours, the width of each. Each has other tokens, equally many.
  Communicator* expert = nullptr;
  /// Hierarchical dispatch: the ranks of `expert` with the same position on other nodes, and those on this
  /// node.
  Communicator *expert_across = nullptr, *expert_inside = nullptr;
  /// Outside of tensor regions a tensor rank has 1 / size of the rows.
  bool sequence_parallel = false;
  /// Ranks that have chunks of the same sequences; ids and positions are this rank's.
  Communicator* context = nullptr;
  /// Of `context`: the neighbours that exchange heads, and the ranks with the same position among other
  /// neighbours.
  Communicator *context_inner = nullptr, *context_outer = nullptr;
  /// The chunks of this rank, where `context` has several ranks; must outlive the tape.
  const ContextRows* context_rows = nullptr;
  ContextForm context_form = ContextForm::heads;
  DispatchKind dispatch = DispatchKind::all_to_all;
  ReceiveCapacity receive = {};
  /// Of dry runs: how many times the rows of an even routing come to this rank's experts.
  double imbalance = 1;
  /// f32 rows are sent to experts and back in bf16; not with all_gather.
  bool bf16_dispatch = false;
  /// The documents where a device finds them (ops/sequence/documents.h), in place of `rows`.
  Value documents = {};

  Precision precision() const { return weights.precision(); }
  /// A parameter's compute value, or an absent one for index -1.
  Value param(int index) const {
    return index < 0 ? Value() : tape.parameter(index, weights.compute(index), weights.gatherer());
  }
  Value leaf_or_absent(const Tensor& t) const { return t.defined() ? tape.leaf(t) : Value(); }
};

}  // namespace ingot
