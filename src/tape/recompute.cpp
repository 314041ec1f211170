// See saved_values.h: values that are computed a second time for backward.
#include "tape/saved_values.h"

namespace ingot {

Node SavedValues::recompute_plan(const Node& node) const {
  const std::optional<PartialRecompute> partial =
      node.op->partial_recompute != nullptr ? node.op->partial_recompute(node.attr.data()) : std::nullopt;
  if (!partial || slots_[node.outputs[partial->output]].fate == SlotFate::recompute) return node;
  Node plan{node.op, partial->attr, node.inputs, node.outputs, node.segment};
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    if (!(partial->others >> i & 1u)) plan.inputs[i] = -1;
  plan.inputs[partial->input] = std::exchange(plan.outputs[partial->output], -1);
  return plan;
}

void SavedValues::release_recompute_inputs(Node& node) {
  node.recompute_inputs_held = false;
  for (const int32_t id : recompute_plan(node).inputs)
    if (id >= 0) unsave(id);
}

void SavedValues::recompute(Node& producer) {
  const Node node = recompute_plan(producer);
  for (const int32_t input : node.inputs)
    if (input >= 0) materialise(input);
  const std::vector<Tensor> in = forward_.inputs(node);
  std::vector<Tensor> out(node.outputs.size());
  for (size_t o = 0; o < out.size(); ++o) {
    if (node.outputs[o] < 0) continue;
    Slot& v = slots_[node.outputs[o]];
    if (v.residency == Residency::prefetching) finish_prefetch(v);
    discard_copy(v);
    if (v.residency == Residency::packed) free_buffer(v);  // it becomes what is computed now
    if (v.residency == Residency::absent) slots_.allocate(v, "recomputed");
    out[o] = slots_.tensor(node.outputs[o]);
  }
  forward_.run(node, in, out, true);
  for (const int32_t output : node.outputs)  // what nobody needs was only a by-product
    if (output >= 0 && !slots_[output].is_needed()) free_buffer(slots_[output]);
  release_recompute_inputs(producer);
}

}  // namespace ingot
