// See saved_values.h: who needs a value, and what happens when nobody does.
#include "tape/saved_values.h"

#include <algorithm>

namespace ingot {

SavedValues::~SavedValues() {
  for (Slot& v : slots_.all()) discard_copy(v);
}

void SavedValues::save_reads(Node& node) {
  for (const Direction d : {Direction::backward_input, Direction::backward_weight}) {
    const PassReads reads = reads_of(node, d);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] >= 0 && (reads.in >> i & 1u)) save(node.inputs[i]);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (reads.out >> i & 1u) save(node.outputs[i]);
  }
  node.recompute_inputs_held = std::any_of(node.outputs.begin(), node.outputs.end(), [&](int32_t id) {
    return slots_[id].fate == SlotFate::recompute;
  });
  if (!node.recompute_inputs_held) return;
  for (const int32_t id : recompute_plan(node).inputs)
    if (id >= 0) save(id);
}

void SavedValues::unsave(int32_t id) {
  Slot& v = slots_[id];
  INGOT_CHECK(v.saved_refs > 0, "value {}", id);
  --v.saved_refs;
  release_if_unused(id);
}

void SavedValues::drop_ref(int32_t id) {
  --slots_[id].refs;
  release_if_unused(id);
}

void SavedValues::release_if_unused(int32_t id) {
  Slot& v = slots_[id];
  if (v.is_leaf || v.refs > 0 || v.pinned_by_send > 0) return;
  if (v.saved_refs > 0) {
    if (!v.in_memory() || state_.in_backward) return;
    if (v.fate == SlotFate::recompute) free_buffer(v);
    if (v.fate == SlotFate::fp8) pack(v);
    if (v.fate == SlotFate::offload && v.residency == Residency::resident) start_offload(id);
    return;
  }
  discard_copy(v);
  free_buffer(v);
  if (v.producer < 0 || !state_.node(v.producer).recompute_inputs_held) return;
  Node& producer = state_.node(v.producer);
  const std::vector<int32_t> outputs = recompute_plan(producer).outputs;
  if (std::none_of(outputs.begin(), outputs.end(),
                   [&](int32_t out) { return out >= 0 && slots_[out].is_needed(); }))
    release_recompute_inputs(producer);
}

void SavedValues::keep_failure() noexcept {
  if (!failure_) failure_ = std::current_exception();
}

void SavedValues::rethrow_failure() const {
  if (failure_) std::rethrow_exception(failure_);
}

void SavedValues::free_buffer(Slot& v, Residency to) {
  if (!v.holds_memory()) return;
  transfers_.detach(v);
  // The value has been freed already if one of these transfers was the last that needed it.
  if (v.holds_memory()) slots_.free(v, to);
}

void SavedValues::materialise(int32_t id) {
  Slot& v = slots_[id];
  if (v.residency == Residency::packed) return unpack(v);
  if (v.residency == Residency::offloaded) prefetch(id);
  if (v.residency == Residency::prefetching) return finish_prefetch(v);
  if (v.residency != Residency::absent) return;
  INGOT_CHECK(v.producer >= 0 && state_.node(v.producer).recompute_inputs_held,
              "value {} cannot be recomputed", id);
  recompute(state_.node(v.producer));
}

}  // namespace ingot
