// See tape.h: values, recording and lifetimes. The backward pass is in cursor.cpp, the way to the slower tier and back
// in offload.cpp.
#include "tape/tape.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/clock.h"

namespace ingot {

Value::Value(Tape* tape, int32_t id) : tape_(tape), id_(id) {
  ++tape_->slots_[static_cast<size_t>(id)].handles;
}
Value::Value(const Value& o) : tape_(o.tape_), id_(o.id_) {
  if (tape_ != nullptr) ++tape_->slots_[static_cast<size_t>(id_)].handles;
}
Value::Value(Value&& o) noexcept : tape_(std::exchange(o.tape_, nullptr)), id_(std::exchange(o.id_, -1)) {}
Value& Value::operator=(Value o) noexcept {
  std::swap(tape_, o.tape_);
  std::swap(id_, o.id_);
  return *this;
}
Value::~Value() {
  if (tape_ != nullptr) tape_->drop_handle(id_);
}
const TensorMeta& Value::meta() const {
  INGOT_CHECK(tape_ != nullptr, "absent value");
  return tape_->slots_[static_cast<size_t>(id_)].meta;
}
Tensor Value::tensor() const {
  INGOT_CHECK(tape_ != nullptr, "absent value");
  return tape_->arrived(id_);
}

Tape::Tape(Arena& arena, TapeOptions options) : arena_(arena), options_(options) {
  INGOT_CHECK(options_.device == DeviceKind::cpu || options_.device == DeviceKind::null);
  begin_segment("outside", -1);
}

Tape::~Tape() {
  metrics_.clear();
  // While an exception passes, what is under way is withdrawn.
  for (size_t i = 0; i < transfers_.size() && std::uncaught_exceptions() == 0; ++i)
    land_quietly(static_cast<int32_t>(i));
  for (Slot& v : slots_) {
    forget_ticket(v);
    if (v.owned && (v.present || v.arriving)) arena_.release(v.block);
    if (v.gradient_owned) arena_.release(v.gradient_block);
  }
}

int32_t Tape::add_value(const TensorMeta& meta) {
  slots_.emplace_back();
  slots_.back().meta = meta;
  return static_cast<int32_t>(slots_.size()) - 1;
}

Tensor Tape::tensor_of(int32_t id) const {
  const Slot& v = slots_[static_cast<size_t>(id)];
  INGOT_CHECK(v.present, "value {} is not in memory", id);
  return Tensor(v.data, v.meta.shape, v.meta.dtype, options_.device);
}

Tensor Tape::arrived(int32_t id) {
  if (const int32_t transfer = slots_[static_cast<size_t>(id)].transfer; transfer >= 0) land(transfer);
  return tensor_of(id);
}

Tensor Tape::input_of(int32_t id) {
  const Slot& v = slots_[static_cast<size_t>(id)];
  if (v.gatherer != nullptr && options_.device == DeviceKind::cpu) v.gatherer->use(v.parameter);
  return arrived(id);
}

void Tape::take_off(Pending pending, int32_t node, std::vector<int32_t> from, std::vector<int32_t> to,
                    bool backward) {
  const auto index = static_cast<int32_t>(transfers_.size());
  for (const int32_t id : from)
    ++(backward ? slots_[static_cast<size_t>(id)].gradient_lent : slots_[static_cast<size_t>(id)].lent);
  for (const int32_t id : to)
    (backward ? slots_[static_cast<size_t>(id)].gradient_transfer
              : slots_[static_cast<size_t>(id)].transfer) = index;
  transfers_.push_back({std::move(pending), node, backward, std::move(from), std::move(to)});
}

/// On the null device only memory moves.
void Tape::land(int32_t index) {
  Transfer& t = transfers_[static_cast<size_t>(index)];
  if (t.landed) return;
  t.landed = true;
  const double start = options_.profile != nullptr ? monotonic_seconds() : 0;
  t.pending.wait();
  if (options_.profile != nullptr) {
    OpProfile& p = (*options_.profile)["waiting"];
    ++p.calls;
    p.seconds[t.backward ? 1 : 0] += monotonic_seconds() - start;
  }
  for (const int32_t id : t.to) {
    Slot& v = slots_[static_cast<size_t>(id)];
    (t.backward ? v.gradient_transfer : v.transfer) = -1;
  }
  if (t.node >= 0 && watched()) {
    std::vector<Tensor> came;
    for (const int32_t id : t.to)
      came.push_back(t.backward ? slots_[static_cast<size_t>(id)].gradient : tensor_of(id));
    observe(t.node, t.backward ? Direction::backward_input : Direction::forward, came);
  }
  for (const int32_t id : t.from) {
    Slot& v = slots_[static_cast<size_t>(id)];
    if (!t.backward) {
      if (--v.lent == 0) release_if_unused(id);
    } else if (--v.gradient_lent == 0 && v.gradient_done) {
      release_gradient(v);
    }
  }
}

void Tape::land_all() {
  for (size_t i = 0; i < transfers_.size(); ++i) land(static_cast<int32_t>(i));
}

void Tape::land_quietly(int32_t transfer) {
  try {
    land(transfer);
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
}

void Tape::allocate(Slot& v, const char* category) {
  v.block = arena_.allocate(v.meta.bytes(), category);
  v.data = v.block.data;
  // An empty tensor has no bytes but is there; give it an address that is never read.
  static char nothing;
  if (v.data == nullptr && options_.device == DeviceKind::cpu) v.data = &nothing;
  v.owned = v.present = true;
}

Value Tape::leaf(const Tensor& data, bool requires_grad) {
  const int32_t id = add_value(data.meta);
  Slot& v = slots_.back();
  v.data = data.data;
  v.present = true;
  v.requires_grad = requires_grad && options_.record;
  return Value(this, id);
}

Value Tape::parameter(int index, const Tensor& data, ParameterGatherer* gatherer) {
  const auto known = parameters_.find(index);
  if (known != parameters_.end()) return Value(this, known->second);
  const bool wanted = options_.record && options_.sink != nullptr && options_.sink->wants(index);
  Value value = leaf(data, wanted);
  slots_.back().parameter = index;
  slots_.back().gatherer = gatherer;
  parameters_.emplace(index, value.id());
  return value;
}

void Tape::begin_segment(const char* name, int layer) {
  finish_offloads(static_cast<int32_t>(segments_.size()) - 1);
  const auto here = static_cast<int32_t>(nodes_.size());
  segments_.push_back({name, layer, here, here});
}

void Tape::metric(std::string name, int layer, Reduce reduce, Value value) {
  metrics_.push_back({std::move(name), layer, reduce, std::move(value)});
}

std::vector<Value> Tape::apply(const Op& op, const AttrBox& attr, std::initializer_list<Value> inputs) {
  INGOT_CHECK(!in_backward_, "op '{}' applied after backward began", op.name);
  if (failure_) std::rethrow_exception(failure_);
  INGOT_CHECK(inputs.size() == op.inputs.size(), "op '{}' takes {} inputs, got {}", op.name, op.inputs.size(),
              inputs.size());
  Node node{&op, attr, {}, {}, static_cast<int32_t>(segments_.size()) - 1};
  node.inputs.reserve(inputs.size()), node.outputs.reserve(op.outputs.size());
  bool needs_gradient = false;
  size_t i = 0;
  for (const Value& v : inputs) {
    const InputSlot& slot = op.inputs[i++];
    INGOT_CHECK(v.defined() || slot.optional, "op '{}': input '{}' is missing", op.name, slot.name);
    INGOT_CHECK(!v.defined() || v.tape() == this, "op '{}': input '{}' lives on another tape", op.name,
                slot.name);
    node.inputs.push_back(v.id());
    needs_gradient |=
        v.defined() && slot.kind != InputKind::data && slots_[static_cast<size_t>(v.id())].requires_grad;
  }
  const std::vector<Tensor> in = inputs_of(node);
  std::vector<TensorMeta> metas(op.outputs.size());
  OpCall call{attr.data(), in, {}, {}, {}};
  op.infer(call, metas);
  std::vector<Value> values;
  std::vector<Tensor> out;
  values.reserve(metas.size()), out.reserve(metas.size());
  node.differentiable = needs_gradient && options_.record;
  for (size_t o = 0; o < metas.size(); ++o) {
    const int32_t id = add_value(metas[o]);
    Slot& v = slots_.back();
    v.requires_grad = node.differentiable && op.outputs[o].differentiable;
    if (node.differentiable && options_.policy != nullptr)
      v.fate = options_.policy->fate(op, static_cast<int>(o), segments_.back());
    allocate(v, "activation");
    node.outputs.push_back(id);
    values.emplace_back(this, id);
    out.push_back(tensor_of(id));
  }
  run_forward(node, in, out, false);
  record(std::move(node));
  return values;
}

int32_t Tape::coming_by_rows(const Node& node) const {
  if (!node.op->row_sliced || node.inputs[0] < 0) return -1;
  const int32_t transfer = slots_[static_cast<size_t>(node.inputs[0])].transfer;
  return transfer >= 0 && transfers_[static_cast<size_t>(transfer)].first_local_row >= 0 ? transfer : -1;
}

std::vector<Tensor> Tape::inputs_of(const Node& node) {
  std::vector<Tensor> in;
  in.reserve(node.inputs.size());
  for (const int32_t id : node.inputs)
    in.push_back(id < 0 ? Tensor() : in.empty() && coming_by_rows(node) >= 0 ? tensor_of(id) : input_of(id));
  return in;
}

/// `again`: a repetition for backward.
void Tape::run_forward(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out,
                       bool again) {
  if (!node.op->transfers) {
    const int32_t coming = coming_by_rows(node);
    return coming >= 0 ? execute_by_rows(node, in, out, coming) : execute(node, in, out, nullptr);
  }
  Pending pending;
  execute(node, in, out, &pending);
  std::vector<int32_t> from;
  for (const int32_t id : node.inputs)
    if (id >= 0) from.push_back(id);
  take_off(std::move(pending), again ? -1 : static_cast<int32_t>(nodes_.size()), std::move(from),
           node.outputs, false);
  if (node.op->first_local_row != nullptr)
    transfers_.back().first_local_row = node.op->first_local_row({node.attr.data(), in, out, {}, {}});
}

/// The rows that this rank sends are there already; the others' arrive while their product is formed.
void Tape::execute_by_rows(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out,
                           int32_t transfer) {
  const Transfer& t = transfers_[static_cast<size_t>(transfer)];
  const Tensor own = tensor_of(t.from[0]);
  const int64_t begin = t.first_local_row, end = begin + own.dim(0), rows = in[0].dim(0);
  std::vector<Tensor> part(in.begin(), in.end());
  const auto run = [&](const Tensor& x, int64_t first, int64_t last) {
    if (first == last) return;
    part[0] = x;
    const Tensor y = out[0].slice(first, last);
    execute(node, part, {&y, 1}, nullptr);
  };
  run(own, begin, end);
  land(transfer);
  run(in[0].slice(0, begin), 0, begin);
  run(in[0].slice(end, rows), end, rows);
}

void Tape::execute(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out,
                   Pending* pending) {
  const Op& op = *node.op;
  const std::vector<GradSlot> early = early_gradients(node);
  OpCall call{node.attr.data(), in, out, {}, early};
  call.pending = pending;
  const int64_t scratch_bytes = op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0;
  const Block scratch = scratch_bytes > 0 ? arena_.allocate(scratch_bytes, "scratch") : Block{};
  call.scratch = scratch.data;
  const double start = timed() ? monotonic_seconds() : 0;
  if (options_.device == DeviceKind::cpu) {
    select_kernel(op, call).forward(call);
    if (watched()) clear_beyond_live_rows(op, call);
  } else if (op.dry_run != nullptr) {
    op.dry_run(call, false);
  }
  if (timed()) account(node, call, Direction::forward, start);
  if (scratch_bytes > 0) arena_.release(scratch);
}

std::vector<GradSlot> Tape::early_gradients(const Node& node) {
  const uint32_t early = early_slots(*node.op, node.attr.data());
  std::vector<GradSlot> slots;
  if (early == 0 || !node.differentiable || in_backward_) return slots;
  slots.resize(node.inputs.size());
  for (size_t i = 0; i < slots.size(); ++i)
    if (early >> i & 1u) slots[i] = gradient_slot(node.inputs[i]);
  return slots;
}

void Tape::record(Node node) {
  if (!options_.record && !watched()) return;
  const auto index = static_cast<int32_t>(nodes_.size());
  const std::vector<int32_t> outputs = node.outputs;
  if (node.differentiable) {
    // Only now: an op that throws has outputs, but is on no tape.
    for (const int32_t id : outputs) slots_[static_cast<size_t>(id)].producer = index;
    hold_reads(node);
    node.recipe_held = std::any_of(outputs.begin(), outputs.end(), [&](int32_t id) {
      return slots_[static_cast<size_t>(id)].fate == SlotFate::recompute;
    });
    if (node.recipe_held)
      for (const int32_t id : recipe_of(node).inputs)
        if (id >= 0) hold(id);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] >= 0 && node.op->inputs[i].kind != InputKind::data)
        ++slots_[static_cast<size_t>(node.inputs[i])].uses;
  }
  nodes_.push_back(std::move(node));
  segments_.back().end_node = index + 1;
  if (watched() && !nodes_.back().op->transfers) {
    std::vector<Tensor> out;
    for (const int32_t id : outputs) out.push_back(tensor_of(id));
    observe(index, Direction::forward, out);
  }
}

void Tape::hold_reads(const Node& node) {
  const BackwardReads r = node.op->reads(node.attr.data());
  for (size_t i = 0; i < node.inputs.size(); ++i)
    for (const uint32_t mask : {r.input_in, r.weight_in})
      if (node.inputs[i] >= 0 && (mask >> i & 1u)) hold(node.inputs[i]);
  for (size_t i = 0; i < node.outputs.size(); ++i)
    for (const uint32_t mask : {r.input_out, r.weight_out})
      if (mask >> i & 1u) hold(node.outputs[i]);
}

void Tape::unhold(int32_t id) {
  Slot& v = slots_[static_cast<size_t>(id)];
  INGOT_CHECK(v.holds > 0, "value {}", id);
  --v.holds;
  release_if_unused(id);
}

void Tape::drop_handle(int32_t id) {
  --slots_[static_cast<size_t>(id)].handles;
  release_if_unused(id);
}

void Tape::release_if_unused(int32_t id) {
  Slot& v = slots_[static_cast<size_t>(id)];
  if (!v.owned || v.handles > 0 || v.lent > 0) return;
  const bool done = v.holds == 0;
  if (done) {
    forget_ticket(v);
    free_buffer(v);
  } else if (v.present && !in_backward_) {
    if (v.fate == SlotFate::recompute) free_buffer(v);
    if (v.fate == SlotFate::offload && !v.leaving) start_offload(id);
  }
  if (!done || v.producer < 0) return;
  Node& producer = nodes_[static_cast<size_t>(v.producer)];
  if (!producer.recipe_held) return;
  const auto needed = [&](int32_t out) {
    return out >= 0 &&
           (slots_[static_cast<size_t>(out)].handles > 0 || slots_[static_cast<size_t>(out)].holds > 0);
  };
  const std::vector<int32_t> outputs = recipe_of(producer).outputs;
  if (std::none_of(outputs.begin(), outputs.end(), needed)) release_recipe(producer);
}

void Tape::free_buffer(Slot& v) {
  if (!v.present && !v.arriving) return;
  if (v.transfer >= 0) land_quietly(v.transfer);
  for (size_t i = 0; i < transfers_.size() && v.lent > 0; ++i) land_quietly(static_cast<int32_t>(i));
  if (!v.present && !v.arriving) return;  // what landed has let it go
  arena_.release(v.block);
  v.data = nullptr;
  v.present = v.arriving = false;
}

Node Tape::recipe_of(const Node& node) const {
  const std::optional<PartialRecompute> rest =
      node.op->partial_recompute != nullptr ? node.op->partial_recompute(node.attr.data()) : std::nullopt;
  if (!rest || slots_[static_cast<size_t>(node.outputs[rest->output])].fate == SlotFate::recompute)
    return node;
  Node r{node.op, rest->attr, node.inputs, node.outputs, node.segment};
  for (size_t i = 0; i < r.inputs.size(); ++i)
    if (!(rest->others >> i & 1u)) r.inputs[i] = -1;
  r.inputs[rest->input] = std::exchange(r.outputs[rest->output], -1);
  return r;
}

void Tape::release_recipe(Node& node) {
  node.recipe_held = false;
  for (const int32_t id : recipe_of(node).inputs)
    if (id >= 0) unhold(id);
}

void Tape::materialise(int32_t id) {
  if (slots_[static_cast<size_t>(id)].present) return;
  if (slots_[static_cast<size_t>(id)].away) fetch(id);
  if (slots_[static_cast<size_t>(id)].arriving) return arrive(slots_[static_cast<size_t>(id)]);
  const int32_t index = slots_[static_cast<size_t>(id)].producer;
  INGOT_CHECK(index >= 0 && nodes_[static_cast<size_t>(index)].recipe_held, "value {} cannot be recomputed",
              id);
  const Node node = recipe_of(nodes_[static_cast<size_t>(index)]);
  for (const int32_t input : node.inputs)
    if (input >= 0) materialise(input);
  const std::vector<Tensor> in = inputs_of(node);
  std::vector<Tensor> out(node.outputs.size());
  for (size_t o = 0; o < out.size(); ++o) {
    if (node.outputs[o] < 0) continue;
    Slot& v = slots_[static_cast<size_t>(node.outputs[o])];
    if (v.arriving) arrive(v);
    forget_ticket(v);
    if (!v.present) allocate(v, "recomputed");
    out[o] = tensor_of(node.outputs[o]);
  }
  run_forward(node, in, out, true);
  for (const int32_t output : node.outputs) {  // what nobody waits for was only a by-product
    if (output < 0) continue;
    Slot& v = slots_[static_cast<size_t>(output)];
    if (v.holds == 0 && v.handles == 0) free_buffer(v);
  }
  release_recipe(nodes_[static_cast<size_t>(index)]);
}

void Tape::seed(const Value& value, const Tensor& cotangent) {
  Slot& v = slots_[static_cast<size_t>(value.id())];
  INGOT_CHECK(cotangent.meta.shape == v.meta.shape && cotangent.dtype() == v.meta.dtype,
              "cotangent {} for a value {}", cotangent.meta.str(), v.meta.str());
  INGOT_CHECK(!v.gradient_written, "value {} has a cotangent already", value.id());
  v.gradient = cotangent;
  v.gradient_written = true;
}

Tensor Tape::gradient(const Value& leaf) {
  const Slot& v = slots_[static_cast<size_t>(leaf.id())];
  if (v.gradient_transfer >= 0) land(v.gradient_transfer);
  return v.gradient_written ? v.gradient : Tensor();
}

std::pair<TensorMeta, int> Tape::meta_of(int32_t id) const {
  const Slot& v = slots_[static_cast<size_t>(id)];
  return {v.meta, v.parameter};
}

std::string Tape::dump() const {
  std::string text;
  for (const Segment& s : segments_) {
    if (s.first_node == s.end_node) continue;
    text += fmt::format("{}{}\n", s.name, s.layer >= 0 ? fmt::format(" (layer {})", s.layer) : "");
    for (int32_t n = s.first_node; n < s.end_node; ++n) {
      const Node& node = nodes_[static_cast<size_t>(n)];
      text += fmt::format("  {}{{{}}}", node.op->name, node.op->print(node.attr.data()));
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] >= 0)
          text += fmt::format(" {}=%{}:{}", node.op->inputs[i].name, node.inputs[i],
                              slots_[static_cast<size_t>(node.inputs[i])].meta.str());
      text += " ->";
      for (size_t i = 0; i < node.outputs.size(); ++i)
        text += fmt::format(" {}=%{}:{}", node.op->outputs[i].name, node.outputs[i],
                            slots_[static_cast<size_t>(node.outputs[i])].meta.str());
      text += '\n';
    }
  }
  return text;
}

}  // namespace ingot
