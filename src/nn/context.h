// What a forward pass needs besides its input: the tape, the weights, where documents begin, and the inputs that come
// from outside the step (router biases and loads, forced routes). One object per call of a model.
#pragma once
#include <map>

#include "comm/communicator.h"
#include "nn/weights.h"
#include "ops/sequence/rows.h"
#include "tape/tape.h"

namespace ingot {

/// Per-layer inputs of the routers. Undefined tensors: absent.
struct RouterInputs {
  Tensor bias_E;         ///< f32: selection bias
  Tensor load_E;         ///< f32: last step's load fractions (step-lagged balance loss)
  Tensor forced_ids_TK;  ///< i32: routes to replay
};

/// How tokens reach the ranks of their experts (nn/moe/dispatcher.h).
enum class DispatchKind : uint8_t { all_gather, all_to_all };

struct Context {
  Tape& tape;
  const WeightSet& weights;
  const Rows* rows = nullptr;  ///< documents or cached sequences; must outlive the tape
  Value positions_T;           ///< i32
  std::map<int64_t, RouterInputs> routers = {};  ///< by layer
  bool absorb_latents = false;  ///< latent attention over cached sequences: in the latent space (other roundings)
  Communicator* tensor = nullptr;  ///< ranks that share the cut of products; nullptr: weights are not cut on this axis
  Communicator* expert = nullptr;  ///< ranks that share out the experts; each has other tokens, equally many
  DispatchKind dispatch = DispatchKind::all_to_all;

  Precision precision() const { return weights.precision(); }
  /// A parameter's compute value, or an absent one for index -1.
  Value param(int index) const {
    return index < 0 ? Value() : tape.parameter(index, weights.compute(index));
  }
  Value leaf_or_absent(const Tensor& t) const { return t.defined() ? tape.leaf(t) : Value(); }
};

}  // namespace ingot
