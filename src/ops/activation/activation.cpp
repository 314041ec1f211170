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
  out[0] = {Shape{x.dim(0), is_gated(attr.kind) ? x.dim(1) / 2 : x.dim(1)}, attr.out};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[0].numel());
  return {10 * n, 20 * n, 0, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(0) | slot_bit(1);
  return r;
}

std::string print(const void* attr_data) {
  static const char* const kNames[] = {"gelu", "gelu_tanh", "relu2", "silu", "swiglu", "geglu", "soft_cap"};
  const auto& a = *static_cast<const ActivationAttr*>(attr_data);
  return fmt::format("{} out={}", kNames[static_cast<int>(a.kind)], name_of(a.out));
}

}  // namespace

const Op& activation_op() {
  static const Op op{"activation",
                     {{"x"}, {"p", InputKind::activation, true}},
                     {{"y"}},
                     reads,
                     infer,
                     cost,
                     nullptr,
                     print,
                     activation_kernels()};
  return op;
}

Value activation(Tape& tape, const ActivationAttr& attr, const Value& x, const Value& p_T) {
  return tape.apply(activation_op(), attr, {x, p_T}).front();
}

}  // namespace ingot
