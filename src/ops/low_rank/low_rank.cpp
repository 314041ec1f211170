// See low_rank.h: the op's description, and its CPU kernel: one matrix product per block
// (device/gemm/gemm.h), the scale on the small side of it.
#include "ops/low_rank/low_rank.h"

#include <numeric>

#include "device/gemm/gemm.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/weight_operand.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &base = call.in[0], &h = call.in[1], &b = call.in[2];
  const auto& a = call.attr<LowRankAttr>();
  INGOT_CHECK(base.shape().rank() == 2 && h.shape().rank() == 2 && b.shape().rank() == 2 &&
                  base.dim(0) == h.dim(0) && base.dim(1) == b.dim(0) && h.dim(1) == a.blocks * b.dim(1),
              "{} + {} by {} in {} blocks", base.meta.str(), h.meta.str(), b.meta.str(), a.blocks);
  INGOT_CHECK(std::accumulate(a.rows.begin(), a.rows.begin() + a.blocks, int64_t{0}) == b.dim(0),
              "blocks of {}", b.meta.str());
  out[0] = {base.shape(), a.out};
}

OpCost cost(const OpCall& call) {
  const double product =
      2.0 * static_cast<double>(call.in[0].dim(0)) * static_cast<double>(call.in[2].numel());
  return {product, product, product, tensor_bytes(call)};
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const LowRankAttr*>(attr);
  return fmt::format("out={} scale={} blocks={}", name_of(a.out), a.scale, a.blocks);
}

constexpr int64_t kGrain = 1 << 15;

/// to = scale * from, in f32.
template <class T>
void scaled(float* to, const T* from, float scale, int64_t n) {
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = scale * to_float(from[i]);
  });
}

void scaled(float* to, const Tensor& from, double scale) {
  const auto s = static_cast<float>(scale);
  if (from.dtype() == DType::bf16)
    scaled(to, from.as<bf16>(), s, from.numel());
  else
    scaled(to, from.as<float>(), s, from.numel());
}

/// slot (+)= scale * sums.
void put_scaled(const GradSlot& slot, float* sums, double scale) {
  const int64_t n = slot.tensor.numel();
  scaled(sums, sums, static_cast<float>(scale), n);
  copy_tensor(slot.tensor.data, slot.tensor.dtype(), sums, DType::f32, n, slot.accumulate);
}

void forward(const OpCall& call) {
  const Tensor &base = call.in[0], &h = call.in[1], &b = call.in[2], &y = call.out[0];
  const auto& a = call.attr<LowRankAttr>();
  const int64_t rank = b.dim(1), tokens = base.dim(0), width = base.dim(1);
  const bool rounded = y.dtype() != DType::f32;
  auto* scaled_h = static_cast<float*>(call.scratch);
  float* sums = rounded ? scaled_h + h.numel() : y.as<float>();
  scaled(scaled_h, h, a.scale);
  if (!rounded) copy_tensor(sums, DType::f32, base.data, base.dtype(), base.numel(), false);
  each_low_rank_block(a, [&](int32_t block, int64_t row, int64_t rows) {
    GemmArgs g;
    g.m = tokens, g.n = rows, g.k = rank;
    g.a = scaled_h + block * rank, g.lda = h.dim(1);
    set_weight(g, b, row * rank);
    g.b_transposed = true, g.ldb = rank;
    g.c = sums + row, g.ldc = width;
    g.accumulate = !rounded;
    gemm(g);
  });
  if (!rounded) return;
  copy_tensor(sums, DType::f32, base.data, base.dtype(), base.numel(), true);
  copy_tensor(y.data, y.dtype(), sums, DType::f32, y.numel(), false);
}

void backward_input(const OpCall& call) {
  const Tensor &b = call.in[2], &d_y = call.d_out[0];
  const GradSlot &d_base = call.d_in[0], &d_h = call.d_in[1];
  copy_tensor(d_base, d_y);
  if (!d_h.wanted()) return;
  const int64_t rank = b.dim(1);
  auto* sums = static_cast<float*>(call.scratch);
  each_low_rank_block(call.attr<LowRankAttr>(), [&](int32_t block, int64_t row, int64_t rows) {
    GemmArgs g;
    g.m = d_y.dim(0), g.n = rank, g.k = rows;
    g.a = element(d_y, row), g.a_type = d_y.dtype(), g.lda = d_y.dim(1);
    set_weight(g, b, row * rank);
    g.ldb = rank;
    g.c = sums + block * rank, g.ldc = d_h.tensor.dim(1);
    gemm(g);
  });
  put_scaled(d_h, sums, call.attr<LowRankAttr>().scale);
}

void backward_weight(const OpCall& call) {
  const Tensor &h = call.in[1], &d_y = call.d_out[0];
  const GradSlot& d_b = call.d_in[2];
  const int64_t rank = d_b.tensor.dim(1);
  auto* sums = static_cast<float*>(call.scratch);
  each_low_rank_block(call.attr<LowRankAttr>(), [&](int32_t block, int64_t row, int64_t rows) {
    GemmArgs g;
    g.m = rows, g.n = rank, g.k = d_y.dim(0);
    g.a = element(d_y, row), g.a_type = d_y.dtype(), g.a_transposed = true, g.lda = d_y.dim(1);
    g.b = element(h, block * rank), g.b_type = h.dtype(), g.ldb = h.dim(1);
    g.c = sums + row * rank, g.ldc = rank;
    gemm(g);
  });
  put_scaled(d_b, sums, call.attr<LowRankAttr>().scale);
}

const char* refuse(const OpCall& call) {
  return refuse_other_floats(call);
}

int64_t scratch_bytes(const OpCall& call) {
  if (call.d_in.empty()) {
    const bool rounded = call.attr<LowRankAttr>().out != DType::f32;
    return 4 * (call.in[1].numel() + (rounded ? call.in[0].numel() : 0));
  }
  const GradSlot& slot = call.d_in[2].wanted() ? call.d_in[2] : call.d_in[1];
  return slot.wanted() ? 4 * slot.tensor.numel() : 0;
}

}  // namespace

const Op& low_rank_op() {
  static const Op op{
      .name = "low_rank",
      .inputs = {{"base"}, {"h"}, {"b", InputKind::weight}},
      .outputs = {{"y"}},
      .reads = always<BackwardReads{.input_in = slot_bit(2), .weight_in = slot_bit(1)}>,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels(
          "low_rank", {{"cpu", refuse, forward, backward_input, backward_weight, {.rounded = slot_bit(2)}},
                       low_rank_reference()}),
      .axis_rule = {.passes = kSummable, .sharded = {{2, 0, {AxisType::shards, AxisType::shards}}}}};
  return op;
}

Value low_rank(Tape& tape, DType out, double scale, std::span<const int64_t> rows, const Value& base_TN,
               const Value& h_TR, const Value& b_NK) {
  INGOT_CHECK(!rows.empty() && rows.size() <= LowRankAttr::kMaxBlocks, "{} blocks", rows.size());
  LowRankAttr attr{scale, out, static_cast<int32_t>(rows.size()), {}};
  std::copy(rows.begin(), rows.end(), attr.rows.begin());
  return tape.apply(low_rank_op(), attr, {base_TN, h_TR, b_NK}).front();
}

}  // namespace ingot
