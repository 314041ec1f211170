// See kernel_call.h.
#include "tape/kernel_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "tape/device_call.h"
#include "tape/host_shadow.h"
#include "tensor/host_copy.h"

namespace ingot {
namespace {

/// Index of the first element that is not finite, or -1.
template <class T>
int64_t first_not_finite(const Tensor& t) {
  const T* p = t.as<T>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    if constexpr (std::is_same_v<T, bf16>) {
      if (!std::isfinite(to_float(p[i]))) return i;
    } else if (!std::isfinite(p[i])) {
      return i;
    }
  }
  return -1;
}

/// Results that arrive later than the call of a shadow ends.
class ShadowResults final : public Pending::State {
 public:
  explicit ShadowResults(std::unique_ptr<HostShadow> shadow) : shadow_(std::move(shadow)) {}
  void wait() override { shadow_->finish(); }

 private:
  const std::unique_ptr<HostShadow> shadow_;
};

}  // namespace

void KernelCalls::move_along() const {
  if (state_.options.ranks != nullptr && state_.has_memory()) state_.options.ranks->progress();
}

void KernelCalls::run(const Node& node, OpCall& call, Direction direction) {
  move_along();
  const Op& op = *node.op;
  const int64_t scratch_bytes = op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0;
  const Block scratch = scratch_bytes > 0 ? state_.arena.allocate(scratch_bytes, "scratch") : Block{};
  call.scratch = scratch.data;
  const bool timed = is_timed();
  const double begin = timed ? monotonic_seconds() : 0;
  if (state_.has_memory()) {
    if (state_.options.device == DeviceKind::cpu) {
      run_kernel(select_kernel(op, call), op, call, direction);
    } else if (const Kernel* const kernel = select_device_kernel(op, call, state_.options.device)) {
      if (kernel->device != DeviceKind::cpu) {
        run_kernel(*kernel, op, call, direction);
      } else {
        launch_call(device_of(state_.options.device), *kernel, node, call, direction, scratch_bytes);
        if (are_watched()) clear_beyond_live_rows(op, call);
      }
    } else {
      auto shadow = std::make_unique<HostShadow>(host_, op, call, direction);
      run_kernel(select_kernel(op, shadow->call()), op, shadow->call(), direction);
      if (call.pending != nullptr)
        *call.pending = Pending(std::make_unique<ShadowResults>(std::move(shadow)));
      else
        shadow->finish();
    }
  } else if (op.dry_run != nullptr) {
    op.dry_run(call, direction != Direction::forward);
  }
  if (timed) account(node, call, direction, begin);
  if (scratch_bytes > 0) state_.arena.release(scratch);
}

void KernelCalls::run(const Kernel& kernel, const Node& first, const OpCall& first_call, const Node& second,
                      const OpCall& second_call) {
  move_along();
  const double begin = monotonic_seconds();
  const Tensor out[] = {first_call.out[0], second_call.out[0]};
  kernel.forward({second.attr.data(), first_call.in, out, {}, {}});
  if (!is_timed()) return;
  account(first, first_call, Direction::forward, begin);
  account(second, second_call, Direction::forward, monotonic_seconds());
}

void KernelCalls::run_kernel(const Kernel& kernel, const Op& op, const OpCall& call,
                             Direction direction) const {
  (direction == Direction::forward           ? kernel.forward
   : direction == Direction::backward_weight ? kernel.backward_weight
                                             : kernel.backward_input)(call);
  if (are_watched()) clear_beyond_live_rows(op, call);
}

bool KernelCalls::is_timed() const {
  return state_.options.profile != nullptr || state_.options.observer != nullptr;
}

bool KernelCalls::are_watched() const {
  const TapeOptions& o = state_.options;
  return o.check_finite || (o.observer != nullptr && o.observer->wants_tensors());
}

/// Reports an execution that began at `begin`.
void KernelCalls::account(const Node& node, const OpCall& call, Direction direction, double begin) const {
  const double end = monotonic_seconds();
  const bool forward = direction == Direction::forward, weights = direction == Direction::backward_weight;
  const OpCost cost = cost_of(node, call, direction);
  const double flops = forward   ? cost.forward_flops
                       : weights ? cost.backward_weight_flops
                                 : cost.backward_input_flops;
  const double wire_bytes = weights ? 0 : cost.wire_bytes[forward ? 0 : 1];
  if (state_.options.profile != nullptr) {
    OpProfile& p = (*state_.options.profile)[node.op->name];
    p.calls += forward;
    p.seconds[static_cast<int>(direction)] += end - begin;
    p.flops[static_cast<int>(direction)] += flops;
    p.wire_bytes += wire_bytes;
  }
  if (state_.options.observer == nullptr) return;
  const double bytes = forward                            ? cost.bytes
                       : weights && cost.weight_bytes > 0 ? cost.weight_bytes
                                                          : touched_bytes(call);
  state_.options.observer->ran({*node.op, state_.segment(node.segment), direction,
                                forward && state_.in_backward, begin, end, flops, bytes, wire_bytes, call});
}

void KernelCalls::took_off(int32_t transfer) const {
  if (state_.options.observer != nullptr) state_.options.observer->took_off(transfer);
}

void KernelCalls::landed(int32_t transfer) const {
  if (state_.options.observer != nullptr) state_.options.observer->landed(transfer);
}

void KernelCalls::waited(Direction direction, double begin) const {
  if (state_.options.profile == nullptr) return;
  OpProfile& p = (*state_.options.profile)["waiting"];
  ++p.calls;
  p.seconds[static_cast<int>(direction)] += monotonic_seconds() - begin;
}

/// The call of a backward pass has only what it reads; the op's cost follows from the shapes of all, and
/// from the rows that hold data where it reads how many there are.
OpCost KernelCalls::cost_of(const Node& node, const OpCall& call, Direction direction) const {
  if (direction == Direction::forward) return node.op->cost(call);
  const auto shapes_of = [&](const std::vector<int32_t>& ids, std::span<const Tensor> read) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0)
        tensors.emplace_back();
      else if (i < read.size() && read[i].defined())
        tensors.push_back(read[i]);
      else
        tensors.emplace_back(nullptr, state_.slots[ids[i]].meta, DeviceKind::null);
    }
    return tensors;
  };
  const std::vector<Tensor> in = shapes_of(node.inputs, call.in), out = shapes_of(node.outputs, call.out);
  return node.op->cost({node.attr.data(), in, out, {}, call.d_in});
}

std::string KernelCalls::tensor_name(int32_t index, const std::string& slot) const {
  const Node& node = state_.node(index);
  const Segment& s = state_.segment(node.segment);
  int ordinal = 0;
  for (const Segment& same : state_.segments) {  // a module that is used twice has two segments of one name
    if (same.layer != s.layer || std::strcmp(same.name, s.name) != 0) continue;
    for (int32_t n = same.first_node; n < std::min(same.end_node, index); ++n)
      ordinal += state_.node(n).op == node.op;
  }
  const std::string module = s.layer >= 0 ? fmt::format("layer{}.{}", s.layer, s.name) : std::string(s.name);
  return fmt::format("{}.{}#{}.{}", module, node.op->name, ordinal, slot);
}

void KernelCalls::wrote(int32_t index, Direction direction, std::span<const Tensor> tensors) const {
  if (!state_.has_memory()) return;
  const Node& node = state_.node(index);
  const std::vector<HostCopy> copies(tensors.begin(), tensors.end());
  std::vector<Tensor> on_host;
  for (const HostCopy& copy : copies) on_host.push_back(copy.tensor());
  tensors = on_host;
  if (state_.options.check_finite) check_finite(index, direction, tensors);
  if (state_.options.observer == nullptr) return;
  size_t next = 0;
  if (direction == Direction::forward) {
    for (const OutputSlot& slot : node.op->outputs)
      state_.options.observer->tensor(tensor_name(index, slot.name), tensors[next++]);
    return;
  }
  const uint32_t early = early_slots(*node.op, node.attr.data());
  for (size_t i = 0; i < node.inputs.size() && next < tensors.size(); ++i) {
    const InputSlot& slot = node.op->inputs[i];
    if (node.inputs[i] < 0 || !writes_gradient(direction, slot.kind) || (early >> i & 1u)) continue;
    if (!state_.slots[node.inputs[i]].requires_grad) continue;
    state_.options.observer->tensor(tensor_name(index, fmt::format("d_{}", slot.name)), tensors[next++]);
  }
}

void KernelCalls::check_finite(int32_t index, Direction direction, std::span<const Tensor> tensors) const {
  static const char* const kDirections[] = {"forward", "backward (inputs)", "backward (weights)"};
  for (const Tensor& t : tensors) {
    const int64_t bad = t.dtype() == DType::f32    ? first_not_finite<float>(t)
                        : t.dtype() == DType::bf16 ? first_not_finite<bf16>(t)
                        : t.dtype() == DType::f64  ? first_not_finite<double>(t)
                                                   : -1;
    if (bad >= 0)
      fail("the first value that is not finite comes from {} in {}: element {} of {}",
           tensor_name(index, "output"), kDirections[static_cast<int>(direction)], bad, t.meta.str());
  }
}

}  // namespace ingot
