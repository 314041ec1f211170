// See saved_values.h: values that wait for backward in fewer bytes (PackedForm). On the null device nothing
// is rounded, but buffers are allocated and freed at the same moments.
#include "tape/saved_values.h"

namespace ingot {

void SavedValues::pack(Slot& v) noexcept {
  transfers_.detach(v);
  if (v.residency != Residency::resident) return;
  try {
    const std::optional<PackedForm> form = state_.options.policy->fp8_form(v.meta);
    INGOT_CHECK(form.has_value(), "a value {} has no form in fp8", v.meta.str());
    run(form->pack, v, Tensor(v.data, form->value, v.meta.dtype, v.device),
        slots_.allocate_packed(v, form->packed));
    slots_.keep_packed(v);
  } catch (...) {
    slots_.free_packed(v);
    keep_failure();
  }
}

void SavedValues::unpack(Slot& v) {
  const std::optional<PackedForm> form = state_.options.policy->fp8_form(v.meta);
  slots_.allocate(v, "restored");
  run(form->unpack, v, slots_.packed(v, form->packed), Tensor(v.data, form->value, v.meta.dtype, v.device));
  slots_.free_packed(v);
}

/// Counts as work of the node whose value it is.
void SavedValues::run(const PackedForm::Step& step, const Slot& v, const Tensor& from, const Tensor& to) {
  const Node node{step.op, step.attr, {}, {}, state_.node(v.producer).segment};
  OpCall call{node.attr.data(), {&from, 1}, {&to, 1}, {}, {}};
  kernels_.run(node, call, Direction::forward);
}

}  // namespace ingot
