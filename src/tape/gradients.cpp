// See gradients.h.
#include "tape/gradients.h"

#include "tensor/host_copy.h"

namespace ingot {

void Gradients::seed(int32_t id, const Tensor& cotangent) {
  Slot& v = slots_[id];
  INGOT_CHECK(cotangent.meta.shape == v.meta.shape && cotangent.dtype() == v.meta.dtype,
              "cotangent {} for a value {}", cotangent.meta.str(), v.meta.str());
  INGOT_CHECK(!v.gradient.written, "value {} has a cotangent already", id);
  if (copies_ && cotangent.on_host()) {
    slots_.allocate_gradient(v);
    if (v.device != DeviceKind::null) upload(cotangent, v.gradient.tensor);
    return;
  }
  v.gradient.tensor = cotangent;
  v.gradient.written = true;
}

Tensor Gradients::gradient(int32_t id) {
  const Gradient& g = slots_[id].gradient;
  transfers_.complete(g.pending_transfer);
  return g.written ? g.tensor : Tensor();
}

GradSlot Gradients::next_contribution(int32_t id) {
  Slot& v = slots_[id];
  if (!v.requires_grad) return {};
  if (v.parameter >= 0) return sink_->slot(v.parameter);
  transfers_.complete(v.gradient.pending_transfer);
  const bool accumulate = v.gradient.written;
  if (!accumulate) slots_.allocate_gradient(v);
  return {v.gradient.tensor, accumulate};
}

void Gradients::contributed(int32_t id) {
  Slot& v = slots_[id];
  if (--v.pending_contributions == 0 && v.parameter >= 0 && v.requires_grad) sink_->finished(v.parameter);
}

void Gradients::release(int32_t id) {
  Gradient& g = slots_[id].gradient;
  transfers_.complete(g.pending_transfer);
  g.release_when_sent = g.pinned_by_send > 0;
  if (!g.release_when_sent) slots_.free_gradient(slots_[id]);
}

void Gradients::on_unpinned(int32_t id) {
  if (slots_[id].gradient.release_when_sent) release(id);
}

}  // namespace ingot
