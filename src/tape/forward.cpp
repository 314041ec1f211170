// See forward.h.
#include "tape/forward.h"

namespace ingot {

Tensor Forward::read(int32_t id) {
  const Slot& v = state_.slots[id];
  if (v.gatherer != nullptr && state_.has_memory()) v.gatherer->use(v.parameter);
  return transfers_.received(id);
}

std::vector<Tensor> Forward::inputs(const Node& node) {
  std::vector<Tensor> in;
  in.reserve(node.inputs.size());
  for (const int32_t id : node.inputs) {
    if (id < 0)
      in.emplace_back();
    else
      in.push_back(in.empty() && row_sliced_transfer(node) >= 0 ? state_.slots.tensor(id) : read(id));
  }
  return in;
}

/// The pending transfer of the first input that the node need not wait for, or -1.
int32_t Forward::row_sliced_transfer(const Node& node) const {
  if (!node.op->row_sliced || node.inputs[0] < 0) return -1;
  const int32_t transfer = state_.slots[node.inputs[0]].pending_transfer;
  return transfer >= 0 && transfers_[transfer].first_local_row >= 0 ? transfer : -1;
}

void Forward::run(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out,
                  bool is_recompute) {
  if (!node.op->transfers) {
    const int32_t transfer = row_sliced_transfer(node);
    return transfer >= 0 ? run_row_sliced(node, in, out, transfer) : execute(node, in, out, nullptr);
  }
  Transfer t{.direction = Direction::forward, .received = node.outputs};
  execute(node, in, out, &t.pending);
  for (const int32_t id : node.inputs)
    if (id >= 0) t.sent.push_back(id);
  if (!is_recompute) t.node = static_cast<int32_t>(state_.nodes.size());
  if (node.op->first_local_row != nullptr)
    t.first_local_row = node.op->first_local_row({node.attr.data(), in, out, {}, {}});
  transfers_.begin(std::move(t));
}

const Kernel* Forward::kernel_of(const OpPair& pair, const Node& first, std::span<const Tensor> in,
                                 std::span<const Tensor> out, const AttrBox& second) const {
  if (!state_.has_memory() || row_sliced_transfer(first) >= 0) return nullptr;
  return select_pair_kernel(pair, {second.data(), in, out, {}, {}}, state_.options.device);
}

/// The rows that this rank sends are its own, so they are there already; the others arrive while these are
/// computed.
void Forward::run_row_sliced(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out,
                             int32_t transfer) {
  const Tensor local = state_.slots.tensor(transfers_[transfer].sent[0]);
  const int64_t begin = transfers_[transfer].first_local_row, end = begin + local.dim(0), rows = in[0].dim(0);
  std::vector<Tensor> slices(in.begin(), in.end());
  const auto run = [&](const Tensor& x, int64_t first, int64_t last) {
    if (first == last) return;
    slices[0] = x;
    const Tensor y = out[0].slice(first, last);
    execute(node, slices, {&y, 1}, nullptr);
  };
  run(local, begin, end);
  transfers_.complete(transfer);
  run(in[0].slice(0, begin), 0, begin);
  run(in[0].slice(end, rows), end, rows);
}

/// The gradients that the op writes in forward; none when forward is repeated.
std::vector<GradSlot> Forward::early_gradients(const Node& node) {
  const uint32_t early = early_slots(*node.op, node.attr.data());
  std::vector<GradSlot> slots;
  if (early == 0 || !node.differentiable || state_.in_backward) return slots;
  slots.resize(node.inputs.size());
  for (size_t i = 0; i < slots.size(); ++i)
    if (early >> i & 1u) slots[i] = gradients_.next_contribution(node.inputs[i]);
  return slots;
}

void Forward::execute(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out,
                      Pending* pending) {
  const std::vector<GradSlot> early = early_gradients(node);
  OpCall call{node.attr.data(), in, out, {}, early};
  call.pending = pending;
  kernels_.run(node, call, Direction::forward);
}

}  // namespace ingot
