// See activation.h: the op's description.
#include "ops/activation/activation.h"

#include "ops/activation/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& attr = call.attr<ActivationAttr>();
  const Tensor &x = call.in[0], &p = call.in[1];
  INGOT_CHECK(x.shape().rank() == 2 && (!is_gated(attr.kind) || x.dim(1) % 2 == 0), "x is {}", x.meta.str());
  INGOT_CHECK(!p.defined() || p.shape() == Shape{x.dim(0)}, "p is {}", p.meta.str());
  INGOT_CHECK(!call.in[2].defined() || (call.in[2].dtype() == DType::i32 && call.in[2].numel() > 0),
              "offsets {}", call.in[2].meta.str());
  out[0] = {Shape{x.dim(0), is_gated(attr.kind) ? x.dim(1) / 2 : x.dim(1)}, attr.out};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[0].numel());
  return {10 * n, 20 * n, 0, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(0) | slot_bit(1) | slot_bit(2);
  return r;
}

LiveRows live_rows(const OpCall& call) {
  return {rows_before_end(call.in[2], call.in[0].dim(0)), slot_bit(0), slot_bit(0) | slot_bit(1)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const ActivationAttr*>(attr_data);
  return fmt::format("{} out={}", name_of(a.kind), name_of(a.out));
}

}  // namespace

const Op& activation_op() {
  static const Op op{
      .name = "activation",
      .inputs = {{"x"}, {"p", InputKind::activation, true}, {"offsets", InputKind::data, true}},
      .outputs = {{"y"}},
      .reads = reads,
      .infer = infer,
      .cost = cost,
      .print = print,
      .kernels = activation_kernels(),
      .live_rows = live_rows};
  return op;
}

Value activation(Tape& tape, const ActivationAttr& attr, const Value& x, const Value& p_T,
                 const Value& offsets) {
  return tape.apply(activation_op(), attr, {x, p_T, offsets}).front();
}

}  // namespace ingot
