// See grouped_linear.h: the op's description.
#include "ops/grouped_linear/grouped_linear.h"

#include "ops/grouped_linear/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &x = call.in[0], &w = call.in[1], &offsets = call.in[2];
  INGOT_CHECK(x.shape().rank() == 2 && w.shape().rank() == 3 && x.dim(1) == w.dim(2), "x {} by weight {}",
              x.meta.str(), w.meta.str());
  INGOT_CHECK(offsets.dtype() == DType::i32 && offsets.shape() == Shape{w.dim(0) + 1}, "offsets {}",
              offsets.meta.str());
  out[0] = {Shape{x.dim(0), w.dim(1)}, call.attr<GroupedLinearAttr>().out};
}

OpCost cost(const OpCall& call) {
  const double product = 2.0 * static_cast<double>(call.in[0].dim(0)) *
                         static_cast<double>(call.in[1].dim(1)) * static_cast<double>(call.in[1].dim(2));
  return {product, product, product, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(1) | slot_bit(2);
  r.weight_in = slot_bit(0) | slot_bit(2);
  return r;
}

LiveRows live_rows(const OpCall& call) {
  return {rows_before_end(call.in[2], (call.d_out.empty() ? call.out[0] : call.d_out[0]).dim(0)), slot_bit(0),
          slot_bit(0)};
}

std::string print(const void* attr) {
  return fmt::format("out={}", name_of(static_cast<const GroupedLinearAttr*>(attr)->out));
}

}  // namespace

const Op& grouped_linear_op() {
  static const Op op{.name = "grouped_linear",
                     .inputs = {{"x"}, {"weight", InputKind::weight}, {"offsets", InputKind::data}},
                     .outputs = {{"y"}},
                     .reads = reads,
                     .infer = infer,
                     .cost = cost,
                     .scratch_bytes = grouped_linear_scratch_bytes,
                     .print = print,
                     .kernels = grouped_linear_kernels(),
                     .live_rows = live_rows};
  return op;
}

Value grouped_linear(Tape& tape, DType out, const Value& x_RK, const Value& weight_ENK,
                     const Value& offsets) {
  return tape.apply(grouped_linear_op(), GroupedLinearAttr{out}, {x_RK, weight_ENK, offsets}).front();
}

}  // namespace ingot
