// See backward.h.
#include "tape/backward.h"

#include <algorithm>

#include "tape/parts.h"

namespace ingot {

Backward::Backward(Tape& tape) : parts_(*tape.parts_), segment_(parts_.state.current_segment()) {
  parts_.state.in_backward = true;
  parts_.saved.cancel_offloads();
}

const Segment* Backward::next() const {
  return segment_ >= 0 ? &parts_.state.segment(segment_) : nullptr;
}

bool Backward::advance() {
  if (segment_ < 0) return false;
  parts_.transfers.rethrow_failure();
  parts_.saved.rethrow_failure();
  const Segment& s = parts_.state.segment(segment_--);
  parts_.saved.prefetch_segment(s);
  if (next() != nullptr) parts_.saved.prefetch_segment(*next());
  for (int32_t n = s.end_node - 1; n >= s.first_node; --n) run_node(n);
  const bool layer_ends = next() == nullptr || next()->layer != s.layer;
  if (!parts_.state.options.defer_weight_gradients && layer_ends) run_deferred();
  return segment_ >= 0;
}

void Backward::run() {
  while (advance()) {
  }
  run_deferred();
  parts_.transfers.complete_all();
}

void Backward::run_deferred(size_t count) {
  for (; count > 0 && !deferred_.empty(); --count) {
    const int32_t index = deferred_.front();
    deferred_.pop_front();
    const Node& node = parts_.state.node(index);
    count_deferred(node, -1);
    run_pass(index, Direction::backward_weight);
    finish_pass(node, Direction::backward_weight);
  }
}

void Backward::run_node(int32_t index) {
  const Node& node = parts_.state.node(index);
  if (!node.differentiable) return;
  const bool reached = std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](int32_t id) { return parts_.state.slots[id].gradient.written; });
  bool input_wanted = false, weight_wanted = false;
  for (size_t i = 0; i < node.inputs.size() && reached; ++i) {
    if (node.inputs[i] < 0 || !parts_.state.slots[node.inputs[i]].requires_grad) continue;
    input_wanted |= writes_gradient(Direction::backward_input, node.op->inputs[i].kind);
    weight_wanted |= writes_gradient(Direction::backward_weight, node.op->inputs[i].kind);
  }
  const bool defer = parts_.state.options.defer_weight_gradients;
  // Weight gradients fill the time until what the node reads has arrived.
  if (input_wanted && (overtakes_queue(node) || (!defer && awaits_transfer(node)))) run_deferred();
  if (input_wanted) run_pass(index, Direction::backward_input);
  finish_pass(node, Direction::backward_input);
  if (weight_wanted && (defer || parts_.transfers.any())) {
    deferred_.push_back(index);
    return count_deferred(node, 1);
  }
  if (weight_wanted) run_pass(index, Direction::backward_weight);
  finish_pass(node, Direction::backward_weight);
}

bool Backward::awaits_transfer(const Node& node) const {
  const auto pending = [&](int32_t id) {
    if (id < 0) return false;
    const Slot& v = parts_.state.slots[id];
    return v.pending_transfer >= 0 || v.gradient.pending_transfer >= 0;
  };
  return std::any_of(node.outputs.begin(), node.outputs.end(), pending) ||
         std::any_of(node.inputs.begin(), node.inputs.end(), pending);
}

/// Whether backward_input writes the gradient of a parameter to which deferred weight gradients contribute as
/// well: they come first, because contributions are added in reverse tape order.
bool Backward::overtakes_queue(const Node& node) const {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] >= 0 && node.op->inputs[i].kind == InputKind::parameter &&
        parts_.state.slots[node.inputs[i]].deferred_contributions > 0)
      return true;
  return false;
}

void Backward::count_deferred(const Node& node, int change) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] >= 0 && node.op->inputs[i].kind == InputKind::weight)
      parts_.state.slots[node.inputs[i]].deferred_contributions += change;
}

void Backward::run_pass(int32_t index, Direction direction) {
  const Node& node = parts_.state.node(index);
  const Op& op = *node.op;
  const PassReads reads = reads_of(node, direction);
  const uint32_t early = early_slots(op, node.attr.data());
  std::vector<Tensor> in(node.inputs.size()), out(node.outputs.size()), d_out(node.outputs.size()), written;
  std::vector<GradSlot> d_in(node.inputs.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (node.inputs[i] < 0 || !(reads.in >> i & 1u)) continue;
    parts_.saved.materialise(node.inputs[i]);
    in[i] = parts_.forward.read(node.inputs[i]);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (reads.out >> i & 1u) {
      parts_.saved.materialise(node.outputs[i]);
      out[i] = parts_.transfers.received(node.outputs[i]);
    }
    d_out[i] = parts_.gradients.gradient(node.outputs[i]);
  }
  // A gradient that goes into the sink's memory, or is added to others, must not arrive late.
  bool transfers = op.transfers && direction == Direction::backward_input;
  for (size_t i = 0; i < d_in.size(); ++i) {
    if (node.inputs[i] < 0 || !writes_gradient(direction, op.inputs[i].kind) || (early >> i & 1u)) continue;
    d_in[i] = parts_.gradients.next_contribution(node.inputs[i]);
    if (!d_in[i].wanted()) continue;
    written.push_back(d_in[i].tensor);
    if (d_in[i].accumulate || parts_.state.slots[node.inputs[i]].parameter >= 0) transfers = false;
  }
  OpCall call{node.attr.data(), in, out, d_out, d_in};
  Transfer t{.direction = direction, .node = index};
  if (transfers) call.pending = &t.pending;
  parts_.kernels.run(node, call, direction);
  if (!transfers) {
    if (parts_.kernels.are_watched()) parts_.kernels.wrote(index, direction, written);
    return;
  }
  for (const int32_t id : node.outputs)
    if (parts_.state.slots[id].gradient.written) t.sent.push_back(id);
  for (size_t i = 0; i < d_in.size(); ++i)
    if (d_in[i].wanted()) t.received.push_back(node.inputs[i]);
  parts_.transfers.begin(std::move(t));
}

/// Releases what the pass has read. The weight gradient still needs the cotangents of the outputs.
void Backward::finish_pass(const Node& node, Direction direction) {
  const PassReads reads = reads_of(node, direction);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const int32_t id = node.inputs[i];
    if (id < 0) continue;
    if (reads.in >> i & 1u) parts_.saved.unsave(id);
    if (writes_gradient(direction, node.op->inputs[i].kind)) parts_.gradients.contributed(id);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (reads.out >> i & 1u) parts_.saved.unsave(node.outputs[i]);
  if (direction != Direction::backward_weight) return;
  for (const int32_t id : node.outputs) parts_.gradients.release(id);
}

}  // namespace ingot
