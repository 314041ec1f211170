// What a tape records: nodes (one executed op each) in segments (named runs of nodes); and the policy that
// decides what becomes of their outputs.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tape/op.h"

namespace ingot {

/// A named run of nodes; the unit by which backward advances.
struct Segment {
  /// "embed", "attention", "route", "dispatch", "experts", "combine", "mlp", "head", "stream"
  const char* name;
  int layer;  ///< -1 outside layers
  int32_t first_node;
  int32_t end_node;
};

/// One executed op. Inputs and outputs are ids of the tape's values; -1: an optional input that is absent.
struct Node {
  const Op* op;
  AttrBox attr;
  std::vector<int32_t> inputs, outputs;
  int32_t segment;
  bool differentiable = false;         ///< some output needs a gradient
  bool recompute_inputs_held = false;  ///< so that outputs can be recomputed
};

/// What happens between forward and backward to an output that backward reads. All but fp8 leave every bit as
/// it is.
enum class SlotFate { keep, recompute, offload, fp8 };

/// How a value waits for backward in fewer bytes: one op gives its packed form, another, from that, the value
/// in its own type, rounded. Neither takes other inputs.
struct PackedForm {
  struct Step {
    const Op* op;
    AttrBox attr;
  } pack, unpack;
  Shape value;        ///< of the value, as the ops have it
  TensorMeta packed;  ///< what `pack` gives
};

/// Decides it per (op, output slot, segment), always in the same way. Implementation: train/memory_policy.h.
class SlotPolicy {
 public:
  virtual ~SlotPolicy() = default;
  virtual SlotFate fate(const Op& op, int output, const Segment& segment) const = 0;
  /// The form of values whose fate is fp8; std::nullopt: it has none that is smaller, and is kept.
  virtual std::optional<PackedForm> fp8_form(const TensorMeta&) const { return std::nullopt; }
};

enum class Direction { forward, backward_input, backward_weight };

/// Masks of the inputs and outputs that a backward pass of the node reads.
struct PassReads {
  uint32_t in, out;
};
inline PassReads reads_of(const Node& node, Direction direction) {
  const BackwardReads r = node.op->reads(node.attr.data());
  return direction == Direction::backward_weight ? PassReads{r.weight_in, r.weight_out}
                                                 : PassReads{r.input_in, r.input_out};
}

/// Whether the backward pass of this direction writes the gradients of inputs of this kind.
constexpr bool writes_gradient(Direction direction, InputKind kind) {
  return kind != InputKind::data && (kind == InputKind::weight) == (direction == Direction::backward_weight);
}

}  // namespace ingot
