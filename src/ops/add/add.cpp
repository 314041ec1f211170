// See add.h: the op's description, and its CPU kernel: rows in parallel; the gate's gradient by columns.
#include "ops/add/add.h"

#include "ops/add/call.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"

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

constexpr int64_t kElements = 1 << 15;  // per piece of work

void forward(const OpCall& call) {
  const AddRows p = add_forward_rows(call);
  parallel_kernel(p.rows, row_grain(p.width, kElements), INGOT_ISA_CALL(add_forward), p);
}

void backward_input(const OpCall& call) {
  const Tensor& d_y = call.d_out[0];
  copy_tensor(call.d_in[0], d_y);
  if (!call.in[2].defined()) return copy_tensor(call.d_in[1], d_y);
  if (const AddRows p = add_gated_rows(call); p.d_b != nullptr)
    parallel_kernel(p.rows, row_grain(p.width, kElements), INGOT_ISA_CALL(add_gated_gradient), p);
  if (const AddRows p = add_gate_rows(call); p.d_gate != nullptr)
    parallel_for(p.width, column_grain(p.rows, p.width), [&](int64_t begin, int64_t end) {
      INGOT_ISA_CALL(add_gate_gradient)(p, kParameterChunkRows, begin, end);
    });
}

/// What the gradients of a gated sum share.
AddRows gradient_rows(const OpCall& call) {
  const Tensor& d_y = call.d_out[0];
  AddRows p{};
  p.rows = d_y.dim(0), p.width = d_y.dim(1);
  p.gate = device_address<const float>(call.in[2]);
  p.d_y = d_y.data, p.y_type = d_y.dtype();
  return p;
}

}  // namespace

AddRows add_forward_rows(const OpCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1], &y = call.out[0];
  AddRows p{};
  p.rows = a.dim(0), p.width = a.dim(1);
  p.a = a.data, p.a_type = a.dtype();
  p.b = b.data, p.b_type = b.dtype();
  p.gate = device_address<const float>(call.in[2]);
  p.y = y.data, p.y_type = y.dtype();
  return p;
}

AddRows add_gated_rows(const OpCall& call) {
  AddRows p = gradient_rows(call);
  const GradSlot& d_b = call.d_in[1];
  p.d_b = d_b.tensor.data, p.b_type = d_b.tensor.dtype(), p.accumulate = d_b.accumulate;
  return p;
}

AddRows add_gate_rows(const OpCall& call) {
  AddRows p = gradient_rows(call);
  const GradSlot& d_gate = call.d_in[2];
  p.b = call.in[1].data, p.b_type = call.in[1].dtype();
  p.d_gate = device_address<float>(d_gate.tensor), p.accumulate = d_gate.accumulate;
  return p;
}

const Op& add_op() {
  static const Op op{
      .name = "add",
      .inputs = {{"a"}, {"b"}, {"gate", InputKind::parameter, true}},
      .outputs = {{"y"}},
      .reads = reads,
      .infer = infer,
      .cost = cost,
      .print = print,
      .kernels = with_gpu_kernels(
          "add", {{"cpu", refuse_other_floats, forward, backward_input, nullptr}, add_reference()}),
      .axis_rule = {.passes = kAnyAxisType}};
  return op;
}

Value add(Tape& tape, DType out, const Value& a_TD, const Value& b_TD, const Value& gate_D) {
  return tape.apply(add_op(), AddAttr{out, gate_D.defined()}, {a_TD, b_TD, gate_D}).front();
}

}  // namespace ingot
