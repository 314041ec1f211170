// See tape.h: the backward pass, the deferred queue, and what watches executions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "tape/tape.h"

namespace ingot {

Backward::Backward(Tape& tape) : tape_(tape), segment_(static_cast<int32_t>(tape.segments_.size()) - 1) {
  tape_.in_backward_ = true;
  tape_.cancel_offloads();
}

const Segment* Backward::next() const {
  return segment_ >= 0 ? &tape_.segments_[static_cast<size_t>(segment_)] : nullptr;
}

bool Backward::advance() {
  if (segment_ < 0) return false;
  if (tape_.failure_) std::rethrow_exception(tape_.failure_);
  const Segment& s = tape_.segments_[static_cast<size_t>(segment_--)];
  tape_.fetch_segment(s);
  if (segment_ >= 0) tape_.fetch_segment(tape_.segments_[static_cast<size_t>(segment_)]);
  for (int32_t n = s.end_node - 1; n >= s.first_node; --n) tape_.backward_node(n);
  const bool layer_ends = segment_ < 0 || tape_.segments_[static_cast<size_t>(segment_)].layer != s.layer;
  if (!tape_.options_.defer_weight_gradients && layer_ends) tape_.drain();
  return segment_ >= 0;
}

void Backward::run() {
  while (advance()) {
  }
  tape_.drain();
  tape_.land_all();
}

void Tape::backward_node(int32_t index) {
  const Node& node = nodes_[static_cast<size_t>(index)];
  if (!node.differentiable) return;
  bool reached = false;
  for (const int32_t id : node.outputs) reached |= slots_[static_cast<size_t>(id)].gradient_written;
  bool input_wanted = false, weight_wanted = false;
  for (size_t i = 0; i < node.inputs.size() && reached; ++i) {
    if (node.inputs[i] < 0 || !slots_[static_cast<size_t>(node.inputs[i])].requires_grad) continue;
    const InputKind kind = node.op->inputs[i].kind;
    input_wanted |= kind == InputKind::activation || kind == InputKind::parameter;
    weight_wanted |= kind == InputKind::weight;
  }
  // Weight gradients fill the time until what the node reads has come.
  const auto awaited = [&](int32_t id) {
    return id >= 0 && (slots_[static_cast<size_t>(id)].transfer >= 0 ||
                       slots_[static_cast<size_t>(id)].gradient_transfer >= 0);
  };
  const bool waits = std::any_of(node.outputs.begin(), node.outputs.end(), awaited) ||
                     std::any_of(node.inputs.begin(), node.inputs.end(), awaited);
  if (input_wanted && (overtakes_queue(node) || (waits && !options_.defer_weight_gradients))) drain();
  if (input_wanted) run_backward(index, Direction::backward_input);
  finish_node(index, Direction::backward_input);
  if (weight_wanted && (options_.defer_weight_gradients || !transfers_.empty())) {
    deferred_.push_back(index);
    count_queued(node, 1);
    return;
  }
  if (weight_wanted) run_backward(index, Direction::backward_weight);
  finish_node(index, Direction::backward_weight);
}

bool Tape::overtakes_queue(const Node& node) const {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] >= 0 && node.op->inputs[i].kind == InputKind::parameter &&
        slots_[static_cast<size_t>(node.inputs[i])].queued > 0)
      return true;
  return false;
}

void Tape::count_queued(const Node& node, int change) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] >= 0 && node.op->inputs[i].kind == InputKind::weight)
      slots_[static_cast<size_t>(node.inputs[i])].queued += change;
}

void Tape::drain(size_t count) {
  for (; count > 0 && !deferred_.empty(); --count) {
    const int32_t index = deferred_.front();
    deferred_.pop_front();
    count_queued(nodes_[static_cast<size_t>(index)], -1);
    run_backward(index, Direction::backward_weight);
    finish_node(index, Direction::backward_weight);
  }
}

void Tape::run_backward(int32_t index, Direction direction) {
  const Node& node = nodes_[static_cast<size_t>(index)];
  const Op& op = *node.op;
  const bool weights = direction == Direction::backward_weight;
  const BackwardReads reads = op.reads(node.attr.data());
  const uint32_t read_in = weights ? reads.weight_in : reads.input_in;
  const uint32_t read_out = weights ? reads.weight_out : reads.input_out;
  const uint32_t early = early_slots(op, node.attr.data());
  std::vector<Tensor> in(node.inputs.size()), out(node.outputs.size()), d_out(node.outputs.size());
  std::vector<GradSlot> d_in(node.inputs.size());
  std::vector<Tensor> written;
  for (size_t i = 0; i < in.size(); ++i)
    if (node.inputs[i] >= 0 && (read_in >> i & 1u))
      materialise(node.inputs[i]), in[i] = input_of(node.inputs[i]);
  for (size_t i = 0; i < out.size(); ++i) {
    if (read_out >> i & 1u) materialise(node.outputs[i]), out[i] = arrived(node.outputs[i]);
    const Slot& v = slots_[static_cast<size_t>(node.outputs[i])];
    if (v.gradient_transfer >= 0) land(v.gradient_transfer);
    if (v.gradient_written) d_out[i] = v.gradient;
  }
  for (size_t i = 0; i < d_in.size(); ++i) {
    const InputKind kind = op.inputs[i].kind;
    if (node.inputs[i] < 0 || kind == InputKind::data || (kind == InputKind::weight) != weights ||
        (early >> i & 1u))
      continue;
    d_in[i] = gradient_slot(node.inputs[i]);
    if (d_in[i].wanted()) written.push_back(d_in[i].tensor);
  }
  OpCall call{node.attr.data(), in, out, d_out, d_in};
  // Into memory of somebody else, or on top of other contributions, a gradient comes at once.
  bool flies = op.transfers && !weights;
  for (size_t i = 0; i < d_in.size(); ++i)
    if (d_in[i].wanted() &&
        (d_in[i].accumulate || slots_[static_cast<size_t>(node.inputs[i])].parameter >= 0))
      flies = false;
  Pending pending;
  if (flies) call.pending = &pending;
  const int64_t scratch_bytes = op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0;
  const Block scratch = scratch_bytes > 0 ? arena_.allocate(scratch_bytes, "scratch") : Block{};
  call.scratch = scratch.data;
  const double start = timed() ? monotonic_seconds() : 0;
  if (options_.device == DeviceKind::cpu) {
    const Kernel& kernel = select_kernel(op, call);
    (weights ? kernel.backward_weight : kernel.backward_input)(call);
    if (watched()) clear_beyond_live_rows(op, call);
  } else if (op.dry_run != nullptr) {
    op.dry_run(call, true);
  }
  if (timed()) account(node, call, direction, start);
  if (scratch_bytes > 0) arena_.release(scratch);
  if (flies) {
    std::vector<int32_t> from, to;
    for (const int32_t id : node.outputs)
      if (slots_[static_cast<size_t>(id)].gradient_written) from.push_back(id);
    for (size_t i = 0; i < d_in.size(); ++i)
      if (d_in[i].wanted()) to.push_back(node.inputs[i]);
    take_off(std::move(pending), index, std::move(from), std::move(to), true);
  }
  if (watched() && !flies) observe(index, direction, written);
}

void Tape::account(const Node& node, const OpCall& call, Direction direction, double begin) {
  const double end = monotonic_seconds();
  const bool forward = direction == Direction::forward, weights = direction == Direction::backward_weight;
  const OpCost cost = forward ? node.op->cost(call) : cost_of(node, call.d_in);
  const double flops = forward   ? cost.forward_flops
                       : weights ? cost.backward_weight_flops
                                 : cost.backward_input_flops;
  const double wire_bytes = weights ? 0 : cost.wire_bytes[forward ? 0 : 1];
  if (options_.profile != nullptr) {
    OpProfile& p = (*options_.profile)[node.op->name];
    p.calls += forward;
    p.seconds[static_cast<int>(direction)] += end - begin;
    p.flops[static_cast<int>(direction)] += flops;
    p.wire_bytes += wire_bytes;
  }
  if (options_.observer == nullptr || options_.device != DeviceKind::cpu) return;
  const double bytes = forward                            ? cost.bytes
                       : weights && cost.weight_bytes > 0 ? cost.weight_bytes
                                                          : touched_bytes(call);
  options_.observer->ran({*node.op, segments_[static_cast<size_t>(node.segment)], direction,
                          forward && in_backward_, begin, end, flops, bytes, wire_bytes, call});
}

OpCost Tape::cost_of(const Node& node, std::span<const GradSlot> d_in) const {
  std::vector<Tensor> in, out;
  const auto meta_only = [&](int32_t id) {
    if (id < 0) return Tensor();
    const Slot& v = slots_[static_cast<size_t>(id)];
    return Tensor(nullptr, v.meta.shape, v.meta.dtype, DeviceKind::null);
  };
  for (const int32_t id : node.inputs) in.push_back(meta_only(id));
  for (const int32_t id : node.outputs) out.push_back(meta_only(id));
  return node.op->cost({node.attr.data(), in, out, {}, d_in});
}

void Tape::finish_node(int32_t index, Direction direction) {
  const Node& node = nodes_[static_cast<size_t>(index)];
  const bool weights = direction == Direction::backward_weight;
  const BackwardReads reads = node.op->reads(node.attr.data());
  const uint32_t read_in = weights ? reads.weight_in : reads.input_in;
  const uint32_t read_out = weights ? reads.weight_out : reads.input_out;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const int32_t id = node.inputs[i];
    if (id < 0) continue;
    if (read_in >> i & 1u) unhold(id);
    const InputKind kind = node.op->inputs[i].kind;
    if (kind == InputKind::data || (kind == InputKind::weight) != weights) continue;
    Slot& v = slots_[static_cast<size_t>(id)];
    if (--v.uses == 0 && v.parameter >= 0 && v.requires_grad) options_.sink->finished(v.parameter);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (read_out >> i & 1u) unhold(node.outputs[i]);
  if (!weights) return;  // the weight gradient still needs the cotangents
  for (const int32_t id : node.outputs) release_gradient(slots_[static_cast<size_t>(id)]);
}

GradSlot Tape::gradient_slot(int32_t id) {
  Slot& v = slots_[static_cast<size_t>(id)];
  if (!v.requires_grad) return {};
  if (v.parameter >= 0) return options_.sink->slot(v.parameter);
  if (v.gradient_transfer >= 0) land(v.gradient_transfer);
  const bool accumulate = v.gradient_written;
  if (!accumulate) {
    v.gradient_block = arena_.allocate(v.meta.bytes(), "gradient");
    v.gradient_owned = true;
    static char nothing;
    void* data = v.gradient_block.data;
    if (data == nullptr && options_.device == DeviceKind::cpu) data = &nothing;
    v.gradient = Tensor(data, v.meta.shape, v.meta.dtype, options_.device);
    v.gradient_written = true;
  }
  return {v.gradient, accumulate};
}

void Tape::release_gradient(Slot& v) {
  if (v.gradient_transfer >= 0) land(v.gradient_transfer);
  v.gradient_done = v.gradient_lent > 0;
  if (v.gradient_done) return;
  if (v.gradient_owned) arena_.release(v.gradient_block);
  v.gradient_owned = false;
  v.gradient_written = false;
  v.gradient = Tensor();
}

std::string Tape::tensor_name(int32_t index, const char* slot) const {
  const Node& node = nodes_[static_cast<size_t>(index)];
  const Segment& s = segments_[static_cast<size_t>(node.segment)];
  int ordinal = 0;
  for (const Segment& same : segments_) {  // a module that is used twice has two segments of one name
    if (same.layer != s.layer || std::strcmp(same.name, s.name) != 0) continue;
    for (int32_t n = same.first_node; n < std::min(same.end_node, index); ++n)
      ordinal += nodes_[static_cast<size_t>(n)].op == node.op;
  }
  const std::string place = s.layer >= 0 ? fmt::format("layer{}.{}", s.layer, s.name) : std::string(s.name);
  return fmt::format("{}.{}#{}.{}", place, node.op->name, ordinal, slot);
}

void Tape::observe(int32_t index, Direction direction, std::span<const Tensor> tensors) {
  if (options_.device != DeviceKind::cpu) return;
  const Node& node = nodes_[static_cast<size_t>(index)];
  if (options_.check_finite) check_finite(index, direction, tensors);
  if (options_.observer == nullptr) return;
  size_t next = 0;
  if (direction == Direction::forward) {
    for (const OutputSlot& slot : node.op->outputs)
      options_.observer->tensor(tensor_name(index, slot.name), tensors[next++]);
    return;
  }
  for (size_t i = 0; i < node.inputs.size() && next < tensors.size(); ++i) {
    const InputKind kind = node.op->inputs[i].kind;
    const bool weight = kind == InputKind::weight;
    if (node.inputs[i] < 0 || kind == InputKind::data || weight != (direction == Direction::backward_weight))
      continue;
    if (early_slots(*node.op, node.attr.data()) >> i & 1u) continue;
    if (!slots_[static_cast<size_t>(node.inputs[i])].requires_grad) continue;
    options_.observer->tensor(tensor_name(index, ("d_" + std::string(node.op->inputs[i].name)).c_str()),
                              tensors[next++]);
  }
}

namespace {

template <class T>
int64_t first_bad(const Tensor& t) {
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

}  // namespace

void Tape::check_finite(int32_t index, Direction direction, std::span<const Tensor> tensors) const {
  static const char* const kDirections[] = {"forward", "backward (inputs)", "backward (weights)"};
  for (const Tensor& t : tensors) {
    const int64_t bad = t.dtype() == DType::f32    ? first_bad<float>(t)
                        : t.dtype() == DType::bf16 ? first_bad<bf16>(t)
                        : t.dtype() == DType::f64  ? first_bad<double>(t)
                                                   : -1;
    if (bad >= 0)
      fail("the first value that is not finite comes from {} in {}: element {} of {}",
           tensor_name(index, "output"), kDirections[static_cast<int>(direction)], bad, t.meta.str());
  }
}

}  // namespace ingot
