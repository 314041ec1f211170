// See tape.h: saved values on their way to the slower tier and back. On the null device nothing is copied,
// but buffers are born and die at the same moments.
#include "tape/tape.h"

namespace ingot {

void Tape::start_offload(int32_t id) {
  Slot& v = slots_[static_cast<size_t>(id)];
  if (v.block.bytes == 0) return;
  if (v.transfer >= 0) land(v.transfer);
  if (options_.device != DeviceKind::null) {
    INGOT_CHECK(options_.offload_store != nullptr, "the policy offloads value {}, but the tape has no tier",
                id);
    v.ticket = options_.offload_store->write(v.data, v.meta.bytes());
  }
  v.leaving = true;
  leaving_.emplace_back(id, static_cast<int32_t>(segments_.size()) - 1);
}

/// Frees what segments before this one began to write: a whole segment has passed for the copy.
void Tape::finish_offloads(int32_t before_segment) {
  while (!leaving_.empty() && leaving_.front().second < before_segment) {
    Slot& v = slots_[static_cast<size_t>(leaving_.front().first)];
    leaving_.pop_front();
    if (!v.leaving) continue;  // nobody needed it after all
    if (v.ticket >= 0) options_.offload_store->wait(v.ticket);
    free_buffer(v);
    v.leaving = false;
    v.away = true;
    ++values_away_;
  }
}

/// Backward begins with the last segments: what has not left yet stays.
void Tape::cancel_offloads() {
  for (const auto& [id, segment] : leaving_) forget_ticket(slots_[static_cast<size_t>(id)]);
  leaving_.clear();
}

void Tape::fetch_segment(const Segment& segment) {
  if (values_away_ == 0) return;
  ++fetch_round_;
  for (int32_t n = segment.end_node - 1; n >= segment.first_node; --n) {
    const Node& node = nodes_[static_cast<size_t>(n)];
    if (!node.differentiable) continue;
    const BackwardReads r = node.op->reads(node.attr.data());
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] >= 0 && ((r.input_in | r.weight_in) >> i & 1u)) fetch(node.inputs[i]);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if ((r.input_out | r.weight_out) >> i & 1u) fetch(node.outputs[i]);
  }
}

/// Starts the value's way back; for one that will be computed again, that of its inputs.
void Tape::fetch(int32_t id) {
  Slot& v = slots_[static_cast<size_t>(id)];
  if (v.present || v.arriving || v.fetch_round == fetch_round_) return;
  if (!v.away) {
    v.fetch_round = fetch_round_;  // chains of recomputation branch and meet again
    if (v.producer < 0 || !nodes_[static_cast<size_t>(v.producer)].recipe_held) return;
    for (const int32_t input : recipe_of(nodes_[static_cast<size_t>(v.producer)]).inputs)
      if (input >= 0) fetch(input);
    return;
  }
  allocate(v, "restored");
  v.present = false;
  v.arriving = true;
  if (v.ticket >= 0) options_.offload_store->read(v.ticket, v.data);
}

void Tape::arrive(Slot& v) {
  if (v.ticket >= 0) options_.offload_store->wait(v.ticket);
  v.present = true;
  forget_ticket(v);
}

/// The value has nothing to do with the tier any more; its buffer, if it has one, stays.
void Tape::forget_ticket(Slot& v) {
  if (v.ticket >= 0) options_.offload_store->forget(v.ticket);
  v.ticket = -1;
  values_away_ -= v.away;
  v.leaving = v.away = false;
  if (v.present) v.arriving = false;
}

}  // namespace ingot
