// See grouped_linear.h: the op's description, and its CPU kernel: one product per expert; see
// device/gemm/gemm.h for the contract of their bits.
#include "ops/grouped_linear/grouped_linear.h"

#include "device/gemm/gemm.h"
#include "device/memory/scratch.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/weight_operand.h"

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
  const double share = live_share(call.in[2], call.in[0].dim(0), call.attr<GroupedLinearAttr>().expected);
  const double product = 2.0 * share * static_cast<double>(call.in[0].dim(0)) *
                         static_cast<double>(call.in[1].dim(1)) * static_cast<double>(call.in[1].dim(2));
  return {product, product, product, live_bytes(call, slot_bit(0), slot_bit(0), share)};
}

LiveRows live_rows(const OpCall& call) {
  return {rows_before_end(call.in[2], (call.d_out.empty() ? call.out[0] : call.d_out[0]).dim(0)), slot_bit(0),
          slot_bit(0)};
}

std::string print(const void* attr) {
  return fmt::format("out={}", name_of(static_cast<const GroupedLinearAttr*>(attr)->out));
}

/// The experts' row ranges and sizes; offsets live in the thread's scratch until its next use.
GroupedGemmArgs arguments(const Tensor& offsets, int64_t rows) {
  const int64_t count = offsets.numel();
  auto* wide = static_cast<int64_t*>(scratch(ScratchSlot::kernel, count * int64_t{sizeof(int64_t)}));
  for (int64_t e = 0; e < count; ++e) wide[e] = offsets.as<int32_t>()[e];
  for (int64_t e = 0; e + 1 < count; ++e)
    INGOT_CHECK(wide[e] <= wide[e + 1], "expert {} owns the rows {} .. {}", e, wide[e], wide[e + 1]);
  INGOT_CHECK(wide[0] == 0 && wide[count - 1] <= rows, "offsets {} .. {} for {} rows", wide[0],
              wide[count - 1], rows);
  GroupedGemmArgs g;
  g.experts = count - 1;
  g.offsets = wide;
  return g;
}

void forward(const OpCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1], &y = call.out[0];
  if (x.dim(0) == 0) return;
  GroupedGemmArgs g = arguments(call.in[2], x.dim(0));
  g.n = w.dim(1), g.k = w.dim(2);
  g.a = x.data, g.a_type = x.dtype(), g.lda = g.k;
  set_weight(g, w);
  g.b_transposed = true, g.ldb = g.k, g.b_stride = g.n * g.k;
  g.c = y.data, g.c_type = y.dtype(), g.ldc = g.n;
  gemm_grouped(g);
}

void backward_input(const OpCall& call) {
  const Tensor &w = call.in[1], &d_y = call.d_out[0];
  const GradSlot& d_x = call.d_in[0];
  if (!d_x.wanted() || d_y.dim(0) == 0) return;
  const ProductTarget to(d_x, call.scratch);
  GroupedGemmArgs g = arguments(call.in[2], d_y.dim(0));
  g.n = w.dim(2), g.k = w.dim(1);
  g.a = d_y.data, g.a_type = d_y.dtype(), g.lda = g.k;
  set_weight(g, w);
  g.ldb = g.n, g.b_stride = g.n * g.k;
  g.c = to.data, g.c_type = to.type, g.ldc = g.n;
  g.accumulate = to.accumulate;
  gemm_grouped(g);
  to.finish(rows_before_end(call.in[2], d_y.dim(0)) * g.n);
}

void backward_weight(const OpCall& call) {
  const Tensor &x = call.in[0], &d_y = call.d_out[0], &d_w = call.d_in[1].tensor;
  GroupedGemmArgs g = arguments(call.in[2], x.dim(0));
  g.n = d_w.dim(1), g.k = d_w.dim(2);
  g.a = d_y.data, g.a_type = d_y.dtype(), g.lda = g.n;
  g.b = x.data, g.b_type = x.dtype(), g.ldb = g.k;
  g.c = d_w.data, g.ldc = g.k, g.c_stride = g.n * g.k;
  g.accumulate = call.d_in[1].accumulate;
  gemm_grouped_weight(g);
}

const char* refuse(const OpCall& call) {
  return refuse_weight_types(call, 1);
}

}  // namespace

const Op& grouped_linear_op() {
  static const Op op{
      .name = "grouped_linear",
      .inputs = {{"x"}, {"weight", InputKind::weight}, {"offsets", InputKind::data}},
      .outputs = {{"y"}},
      .reads = always<BackwardReads{.input_in = slot_bit(1) | slot_bit(2),
                                    .weight_in = slot_bit(0) | slot_bit(2)}>,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = product_scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels("grouped_linear", {{"cpu",
                                                      refuse,
                                                      forward,
                                                      backward_input,
                                                      backward_weight,
                                                      {.rounded = slot_bit(1), .packed = slot_bit(1)}},
                                                     grouped_linear_reference()}),
      .live_rows = live_rows,
      .axis_rule = {.passes = kRowwise,
                    .sharded = {{1, 0, {AxisType::shards, AxisType::shards}},
                                {1, 1, {AxisType::shared, AxisType::shards}},
                                {1, 2, {AxisType::shards, AxisType::partial}}}}};
  return op;
}

Value grouped_linear(Tape& tape, DType out, const Value& x_RK, const Value& weight_ENK, const Value& offsets,
                     double expected) {
  return tape.apply(grouped_linear_op(), GroupedLinearAttr{out, expected}, {x_RK, weight_ENK, offsets})
      .front();
}

}  // namespace ingot
