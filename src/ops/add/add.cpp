// See add.h: the op's description.
#include "ops/add/add.h"

#include "ops/add/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &a = call.in[0], &b = call.in[1], &gate = call.in[2];
  INGOT_CHECK(a.shape().rank() == 2 && a.shape() == b.shape(), "{} + {}", a.meta.str(), b.meta.str());
  INGOT_CHECK(gate.defined() == call.attr<AddAttr>().gated);
  INGOT_CHECK(!gate.defined() || gate.shape() == Shape{a.dim(1)}, "gate {}", gate.meta.str());
  out[0] = {a.shape(), call.attr<AddAttr>().out};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[0].numel());
  return {2 * n, 4 * n, 0, tensor_bytes(call)};
}

BackwardReads reads(const void* attr) {
  BackwardReads r;
  if (static_cast<const AddAttr*>(attr)->gated) r.input_in = slot_bit(1) | slot_bit(2);
  return r;
}

std::string print(const void* attr) {
  return fmt::format("out={}", name_of(static_cast<const AddAttr*>(attr)->out));
}

}  // namespace

const Op& add_op() {
  static const Op op{"add",        {{"a"}, {"b"}, {"gate", InputKind::parameter, true}},
                     {{"y"}},      reads,
                     infer,        cost,
                     nullptr,      print,
                     add_kernels()};
  return op;
}

Value add(Tape& tape, DType out, const Value& a_TD, const Value& b_TD, const Value& gate_D) {
  return tape.apply(add_op(), AddAttr{out, gate_D.defined()}, {a_TD, b_TD, gate_D}).front();
}

}  // namespace ingot
