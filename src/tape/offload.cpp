// See saved_values.h: values that are written to the store and read back. On the null device nothing is
// copied, but buffers are allocated and freed at the same moments.
#include "tape/saved_values.h"

namespace ingot {

void SavedValues::start_offload(int32_t id) noexcept {
  Slot& v = slots_[id];
  if (v.block.bytes == 0) return;
  try {
    transfers_.complete(v.pending_transfer);
    if (state_.has_memory()) {
      OffloadStore* const store = state_.options.offload_store;
      INGOT_CHECK(store != nullptr, "the policy offloads value {}, but the tape has no offload store", id);
      v.store_handle = store->write(v.data, v.meta.bytes());
    }
    slots_.move(v, Residency::offloading);
    offloading_.emplace_back(id, state_.current_segment());
  } catch (...) {
    discard_copy(v);
    keep_failure();
  }
}

void SavedValues::finish_offloads(int32_t before_segment) {
  while (!offloading_.empty() && offloading_.front().second < before_segment) {
    Slot& v = slots_[offloading_.front().first];
    offloading_.erase(offloading_.begin());
    if (v.residency != Residency::offloading) continue;  // nobody needed it after all
    if (v.store_handle >= 0) state_.options.offload_store->wait(v.store_handle);
    free_buffer(v, Residency::offloaded);
  }
}

void SavedValues::cancel_offloads() {
  for (const auto& [id, segment] : offloading_) discard_copy(slots_[id]);
  offloading_.clear();
}

void SavedValues::prefetch_segment(const Segment& segment) {
  if (slots_.offloaded() == 0) return;
  ++prefetch_round_;
  for (int32_t n = segment.end_node - 1; n >= segment.first_node; --n) {
    const Node& node = state_.node(n);
    if (!node.differentiable) continue;
    const BackwardReads r = node.op->reads(node.attr.data());
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] >= 0 && ((r.input_in | r.weight_in) >> i & 1u)) prefetch(node.inputs[i]);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if ((r.input_out | r.weight_out) >> i & 1u) prefetch(node.outputs[i]);
  }
}

/// Begins to read an offloaded value back; of one that will be recomputed, the values that this reads.
void SavedValues::prefetch(int32_t id) {
  Slot& v = slots_[id];
  if (v.residency == Residency::offloaded) {
    slots_.allocate(v, "restored", Residency::prefetching);
    if (v.store_handle >= 0) state_.options.offload_store->read(v.store_handle, v.data);
    return;
  }
  // Several recomputations may need the same value: each round looks at it once.
  if (v.residency != Residency::absent || v.prefetch_round == prefetch_round_) return;
  v.prefetch_round = prefetch_round_;
  if (v.producer < 0 || !state_.node(v.producer).recompute_inputs_held) return;
  for (const int32_t input : recompute_plan(state_.node(v.producer)).inputs)
    if (input >= 0) prefetch(input);
}

void SavedValues::finish_prefetch(Slot& v) {
  if (v.store_handle >= 0) state_.options.offload_store->wait(v.store_handle);
  slots_.move(v, Residency::resident);
  discard_copy(v);
}

/// Removes the value's copy from the store. A buffer that it has stays; one that is being read back must be
/// freed or waited for.
void SavedValues::discard_copy(Slot& v) {
  if (v.store_handle >= 0) state_.options.offload_store->forget(v.store_handle);
  v.store_handle = -1;
  if (v.residency == Residency::offloading) slots_.move(v, Residency::resident);
  if (v.residency == Residency::offloaded) slots_.move(v, Residency::absent);
}

}  // namespace ingot
