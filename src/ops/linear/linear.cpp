// See linear.h: the op's description, and its CPU kernel: matrix products; see device/gemm/gemm.h for the
// contract of their bits.
#include "ops/linear/linear.h"

#include "device/gemm/gemm.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/weight_operand.h"

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

std::string print(const void* attr) {
  return fmt::format("out={}", name_of(static_cast<const LinearAttr*>(attr)->out));
}

void forward(const OpCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1], &bias = call.in[2], &y = call.out[0];
  GemmArgs g;
  g.m = x.dim(0), g.n = w.dim(0), g.k = x.dim(1);
  g.a = x.data, g.a_type = x.dtype(), g.lda = g.k;
  set_weight(g, w);
  g.b_transposed = true, g.ldb = g.k;
  g.c = y.data, g.c_type = y.dtype(), g.ldc = g.n;
  if (bias.defined()) g.bias = bias.data, g.bias_type = bias.dtype();
  gemm(g);
}

void backward_input(const OpCall& call) {
  const Tensor &w = call.in[1], &d_y = call.d_out[0];
  const GradSlot &d_x = call.d_in[0], &d_bias = call.d_in[2];
  if (d_x.wanted()) {
    const ProductTarget to(d_x, call.scratch);
    GemmArgs g;
    g.m = d_y.dim(0), g.n = w.dim(1), g.k = w.dim(0);
    g.a = d_y.data, g.a_type = d_y.dtype(), g.lda = g.k;
    set_weight(g, w);
    g.ldb = g.n;
    g.c = to.data, g.c_type = to.type, g.ldc = g.n;
    g.accumulate = to.accumulate;
    gemm(g);
    to.finish(d_x.tensor.numel());
  }
  if (d_bias.wanted()) {
    const int64_t rows = d_y.dim(0), n = d_y.dim(1);
    const auto sums = [&](int64_t begin, int64_t end) {
      INGOT_ISA_CALL(column_sums)
      (d_bias.tensor.as<float>(), d_y.data, d_y.dtype(), rows, n, kParameterChunkRows, begin, end,
       d_bias.accumulate);
    };
    parallel_for(n, column_grain(rows, n), sums);
  }
}

void backward_weight(const OpCall& call) {
  const Tensor &x = call.in[0], &d_y = call.d_out[0], &d_w = call.d_in[1].tensor;
  GemmArgs g;
  g.m = d_y.dim(1), g.n = x.dim(1), g.k = x.dim(0);
  g.a = d_y.data, g.a_type = d_y.dtype(), g.a_transposed = true, g.lda = g.m;
  g.b = x.data, g.b_type = x.dtype(), g.ldb = g.n;
  g.c = d_w.data, g.ldc = g.n;
  g.accumulate = call.d_in[1].accumulate;
  gemm(g);
}

const char* refuse(const OpCall& call) {
  return refuse_weight_types(call, 1);
}

}  // namespace

const Op& linear_op() {
  static const Op op{.name = "linear",
                     .inputs = {{"x"}, {"weight", InputKind::weight}, {"bias", InputKind::parameter, true}},
                     .outputs = {{"y"}},
                     .reads = always<BackwardReads{.input_in = slot_bit(1), .weight_in = slot_bit(0)}>,
                     .infer = infer,
                     .cost = cost,
                     .scratch_bytes = product_scratch_bytes,
                     .print = print,
                     .kernels = with_gpu_kernels("linear", {{"cpu",
                                                             refuse,
                                                             forward,
                                                             backward_input,
                                                             backward_weight,
                                                             {.rounded = slot_bit(1), .packed = slot_bit(1)}},
                                                            linear_reference()}),
                     .row_sliced = true,
                     .axis_rule = {.passes = kRowwise,
                                   .sharded = {{1, 0, {AxisType::shared, AxisType::shards}},
                                               {1, 1, {AxisType::shards, AxisType::partial}},
                                               {2, 0, {AxisType::shared, AxisType::shards}}},
                                   .addend = 2}};
  return op;
}

Value linear(Tape& tape, DType out, const Value& x_TK, const Value& weight_NK, const Value& bias_N) {
  return tape.apply(linear_op(), LinearAttr{out}, {x_TK, weight_NK, bias_N}).front();
}

}  // namespace ingot
