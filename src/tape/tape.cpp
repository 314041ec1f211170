// See tape.h: values and recording.
#include "tape/tape.h"

#include <exception>
#include <utility>

#include "tape/parts.h"
#include "tensor/host_copy.h"

namespace ingot {

Value::Value(Tape* tape, int32_t id) : tape_(tape), id_(id) {
  ++tape_->parts_->state.slots[id].refs;
}
Value::Value(const Value& o) : tape_(o.tape_), id_(o.id_) {
  if (tape_ != nullptr) ++tape_->parts_->state.slots[id_].refs;
}
Value::Value(Value&& o) noexcept : tape_(std::exchange(o.tape_, nullptr)), id_(std::exchange(o.id_, -1)) {}
Value& Value::operator=(Value o) noexcept {
  std::swap(tape_, o.tape_);
  std::swap(id_, o.id_);
  return *this;
}
Value::~Value() {
  if (tape_ != nullptr) tape_->parts_->saved.drop_ref(id_);
}
const TensorMeta& Value::meta() const {
  INGOT_CHECK(tape_ != nullptr, "absent value");
  return tape_->parts_->state.slots[id_].meta;
}
Tensor Value::tensor() const {
  INGOT_CHECK(tape_ != nullptr, "absent value");
  return tape_->parts_->transfers.received(id_);
}

Tape::Tape(Arena& arena, TapeOptions options) : parts_(std::make_unique<Parts>(arena, options)) {
  begin_segment("outside", -1);
}

Tape::~Tape() {
  metrics_.clear();
  // While an exception passes, the destructors of pending operations withdraw them.
  if (std::uncaught_exceptions() == 0) parts_->transfers.complete_all_noexcept();
}

Value Tape::leaf(const Tensor& data, bool requires_grad) {
  if (!options().copies_leaves || !data.on_host()) return unplanned_leaf(data, requires_grad);
  Slots& slots = parts_->state.slots;
  const int32_t id = slots.add(data.meta);
  Slot& v = slots[id];
  v.requires_grad = requires_grad && options().record;
  slots.allocate(v, "input");
  if (parts_->state.has_memory()) upload(data, slots.tensor(id));
  return Value(this, id);
}

Value Tape::unplanned_leaf(const Tensor& data, bool requires_grad) {
  const int32_t id = parts_->state.slots.add(data.meta);
  Slot& v = parts_->state.slots[id];
  if (parts_->state.has_memory()) v.device = data.device;
  INGOT_CHECK(v.device == DeviceKind::cpu || v.device == options().device,
              "a leaf on device '{}' of a tape on '{}'", name_of(v.device), name_of(options().device));
  v.data = data.data;
  v.is_leaf = true;
  v.requires_grad = requires_grad && options().record;
  parts_->state.slots.move(v, Residency::resident);
  return Value(this, id);
}

Value Tape::parameter(int index, const Tensor& data, ParameterGatherer* gatherer) {
  const auto known = parts_->parameters.find(index);
  if (known != parts_->parameters.end()) return Value(this, known->second);
  GradientSink* const sink = options().sink;
  Value value = unplanned_leaf(data, sink != nullptr && options().record && sink->wants(index));
  Slot& v = parts_->state.slots[value.id()];
  v.parameter = index;
  v.gatherer = gatherer;
  parts_->parameters.emplace(index, value.id());
  return value;
}

void Tape::begin_segment(const char* name, int layer) {
  TapeState& r = parts_->state;
  parts_->saved.finish_offloads(r.current_segment());
  const auto here = static_cast<int32_t>(r.nodes.size());
  r.segments.push_back({name, layer, here, here});
}

void Tape::metric(std::string name, int layer, Reduce reduce, Value value) {
  metrics_.push_back({std::move(name), layer, reduce, std::move(value)});
}

struct Tape::Execution {
  Node node;
  std::vector<Tensor> in = {}, out = {};
  std::vector<Value> values = {};  ///< the outputs
};

Tape::Execution Tape::prepare(const Op& op, const AttrBox& attr, std::span<const Value> inputs) {
  TapeState& r = parts_->state;
  Slots& slots = parts_->state.slots;
  INGOT_CHECK(!r.in_backward, "op '{}' applied after backward began", op.name);
  parts_->transfers.rethrow_failure();
  parts_->saved.rethrow_failure();
  INGOT_CHECK(inputs.size() == op.inputs.size(), "op '{}' takes {} inputs, got {}", op.name, op.inputs.size(),
              inputs.size());
  Execution e{{&op, attr, {}, {}, r.current_segment()}};
  auto& [node, in, out, values] = e;
  node.inputs.reserve(inputs.size()), node.outputs.reserve(op.outputs.size());
  for (const Value& v : inputs) {
    const InputSlot& slot = op.inputs[node.inputs.size()];
    INGOT_CHECK(v.defined() || slot.optional, "op '{}': input '{}' is missing", op.name, slot.name);
    INGOT_CHECK(!v.defined() || v.tape() == this, "op '{}': input '{}' is of another tape", op.name,
                slot.name);
    node.inputs.push_back(v.id());
    node.differentiable |=
        r.options.record && v.defined() && slot.kind != InputKind::data && slots[v.id()].requires_grad;
  }
  in = parts_->forward.inputs(node);
  std::vector<TensorMeta> metas(op.outputs.size());
  op.infer({attr.data(), in, {}, {}, {}}, metas);
  values.reserve(metas.size()), out.reserve(metas.size());
  for (size_t o = 0; o < metas.size(); ++o) {
    const int32_t id = slots.add(metas[o]);
    Slot& v = slots[id];
    v.requires_grad = node.differentiable && op.outputs[o].differentiable;
    if (node.differentiable && r.options.policy != nullptr)
      v.fate = r.options.policy->fate(op, static_cast<int>(o), r.segments.back());
    if (v.fate == SlotFate::fp8 && !r.options.policy->fp8_form(v.meta)) v.fate = SlotFate::keep;
    slots.allocate(v, "activation");
    if (v.data != nullptr && r.options.device != DeviceKind::cpu)
      device_of(r.options.device).name_memory(v.data, v.meta.bytes(), op.name, op.outputs[o].name);
    node.outputs.push_back(id);
    values.emplace_back(this, id);
    out.push_back(slots.tensor(id));
  }
  return e;
}

void Tape::run(Execution& e) {
  parts_->forward.run(e.node, e.in, e.out, false);
  record(std::move(e.node), e.out);
}

std::vector<Value> Tape::apply(const Op& op, const AttrBox& attr, std::initializer_list<Value> inputs) {
  Execution e = prepare(op, attr, {inputs.begin(), inputs.size()});
  run(e);
  return std::move(e.values);
}

Value Tape::apply(const OpPair& pair, const AttrBox& first, std::initializer_list<Value> inputs,
                  const AttrBox& second) {
  Execution a = prepare(pair.first, first, {inputs.begin(), inputs.size()});
  const Kernel* const kernel = parts_->forward.kernel_of(pair, a.node, a.in, a.out, second);
  if (kernel == nullptr) run(a);
  std::vector<Value> between(pair.second.inputs.size());
  between[0] = a.values[0];
  Execution b = prepare(pair.second, second, between);
  if (kernel == nullptr) {
    run(b);
  } else {
    parts_->kernels.run(*kernel, a.node, {a.node.attr.data(), a.in, a.out, {}, {}}, b.node,
                        {b.node.attr.data(), b.in, b.out, {}, {}});
    record(std::move(a.node), a.out);
    record(std::move(b.node), b.out);
  }
  return std::move(b.values[0]);
}

/// Is called after the op ran: an op that throws has outputs, but is on no tape.
void Tape::record(Node node, std::span<const Tensor> out) {
  TapeState& r = parts_->state;
  if (!r.options.record && !parts_->kernels.are_watched()) return;
  const auto index = static_cast<int32_t>(r.nodes.size());
  if (node.differentiable) {
    for (const int32_t id : node.outputs) parts_->state.slots[id].producer = index;
    parts_->saved.save_reads(node);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] >= 0 && node.op->inputs[i].kind != InputKind::data)
        ++parts_->state.slots[node.inputs[i]].pending_contributions;
  }
  const bool transfers = node.op->transfers;
  r.nodes.push_back(std::move(node));
  r.segments.back().end_node = index + 1;
  if (parts_->kernels.are_watched() && !transfers) parts_->kernels.wrote(index, Direction::forward, out);
}

void Tape::seed(const Value& value, const Tensor& cotangent) {
  parts_->gradients.seed(value.id(), cotangent);
}
Tensor Tape::gradient(const Value& leaf) {
  return parts_->gradients.gradient(leaf.id());
}

const std::vector<Node>& Tape::nodes() const {
  return parts_->state.nodes;
}
const std::vector<Segment>& Tape::segments() const {
  return parts_->state.segments;
}
const TapeOptions& Tape::options() const {
  return parts_->state.options;
}
std::pair<TensorMeta, int> Tape::meta_of(int32_t id) const {
  const Slot& v = parts_->state.slots[id];
  return {v.meta, v.parameter};
}

}  // namespace ingot
