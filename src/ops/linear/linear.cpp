// See linear.h: the op's description.
#include "ops/linear/linear.h"

#include "ops/linear/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &x = call.in[0], &w = call.in[1], &b = call.in[2];
  INGOT_CHECK(x.shape().rank() == 2 && w.shape().rank() == 2 && x.dim(1) == w.dim(1), "x {} by weight {}",
              x.meta.str(), w.meta.str());
  INGOT_CHECK(!b.defined() || b.shape() == Shape{w.dim(0)}, "bias {} for weight {}", b.meta.str(),
              w.meta.str());
  out[0] = {Shape{x.dim(0), w.dim(0)}, call.attr<LinearAttr>().out};
}

OpCost cost(const OpCall& call) {
  const double product = 2.0 * static_cast<double>(call.in[0].dim(0)) *
                         static_cast<double>(call.in[1].dim(0)) * static_cast<double>(call.in[1].dim(1));
  return {product, product, product, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(1);
  r.weight_in = slot_bit(0);
  return r;
}

std::string print(const void* attr) {
  return fmt::format("out={}", name_of(static_cast<const LinearAttr*>(attr)->out));
}

}  // namespace

const Op& linear_op() {
  static const Op op{"linear",
                     {{"x"}, {"weight", InputKind::weight}, {"bias", InputKind::parameter, true}},
                     {{"y"}},
                     reads,
                     infer,
                     cost,
                     linear_scratch_bytes,
                     print,
                     linear_kernels(),
                     false,
                     nullptr,
                     true};
  return op;
}

Value linear(Tape& tape, DType out, const Value& x_TK, const Value& weight_NK, const Value& bias_N) {
  return tape.apply(linear_op(), LinearAttr{out}, {x_TK, weight_NK, bias_N}).front();
}

}  // namespace ingot
