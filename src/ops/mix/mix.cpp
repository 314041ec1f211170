// See mix.h: the op's description, and its CPU kernel: rows in parallel, the scalars' gradients by
// chunks of rows.
#include "ops/mix/mix.h"

#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/mix/call.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

using namespace mix_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& attr = call.attr<MixAttr>();
  const Tensor &a = call.in[kA], &b = call.in[kB];
  INGOT_CHECK(a.shape().rank() == 2 && attr.first >= 0 && attr.first <= a.dim(1), "{} mixed from column {}",
              a.meta.str(), attr.first);
  INGOT_CHECK(!b.defined() || b.shape() == Shape({a.dim(0), a.dim(1) - attr.first}), "{} + {} from column {}",
              a.meta.str(), b.meta.str(), attr.first);
  INGOT_CHECK(call.in[kAlpha].defined() == attr.alpha && call.in[kBeta].defined() == attr.beta &&
              (!attr.alpha || attr.factor == 1));
  for (const uint32_t i : {kAlpha, kBeta})
    INGOT_CHECK(!call.in[i].defined() || call.in[i].shape() == Shape{1}, "a scalar is {}",
                call.in[i].meta.str());
  out[0] = {a.shape(), attr.out};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[kA].numel());
  return {3 * n, 6 * n, 0, tensor_bytes(call)};
}

BackwardReads reads(const void* attr_data) {
  const auto& attr = *static_cast<const MixAttr*>(attr_data);
  BackwardReads r;
  if (attr.alpha) r.input_in |= slot_bit(kA) | slot_bit(kAlpha);
  if (attr.beta) r.input_in |= slot_bit(kB) | slot_bit(kBeta);
  return r;
}

std::string print(const void* attr_data) {
  const auto& attr = *static_cast<const MixAttr*>(attr_data);
  return fmt::format("first={} factor={} out={}", attr.first, attr.factor, name_of(attr.out));
}

constexpr int64_t kElements = 1 << 15;  // per piece of work

/// What forward and backward share; absent tensors become nullptr.
MixRows arguments(const OpCall& call, int64_t width) {
  const auto& attr = call.attr<MixAttr>();
  MixRows p{};
  p.width = width, p.first = attr.first;
  p.a = call.in[kA].data, p.a_type = call.in[kA].dtype();
  p.b = call.in[kB].data, p.b_type = call.in[kB].dtype();
  p.alpha = device_address<const float>(call.in[kAlpha]),
  p.beta = device_address<const float>(call.in[kBeta]);
  p.factor = static_cast<float>(attr.factor);
  p.y_type = attr.out;
  return p;
}

void forward(const OpCall& call) {
  const MixRows p = mix_forward_rows(call);
  parallel_kernel(call.out[0].dim(0), row_grain(p.width, kElements), INGOT_ISA_CALL(mix_forward), p);
}

void scalar_gradients(const OpCall& call, const MixRows& p, int64_t rows) {
  auto* partials = static_cast<float*>(call.scratch);
  const int64_t chunks = parameter_chunks(rows);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) INGOT_ISA_CALL(mix_scalar_sums)
    (p, c * kParameterChunkRows, std::min(rows, (c + 1) * kParameterChunkRows), partials + 2 * c);
  });
  combine_parameter_chunks(partials, chunks, 2, 1, call.d_in[kAlpha]);
  combine_parameter_chunks(partials + 1, chunks, 2, 1, call.d_in[kBeta]);
}

void backward_input(const OpCall& call) {
  const int64_t rows = call.d_out[0].dim(0);
  if (call.d_in[kAlpha].wanted() || call.d_in[kBeta].wanted())
    scalar_gradients(call, mix_scalar_rows(call), rows);
  const MixRows p = mix_backward_rows(call);
  parallel_kernel(rows, row_grain(p.width, kElements), INGOT_ISA_CALL(mix_backward), p);
}

int64_t scratch_bytes(const OpCall& call) {
  // Backward's, from either direction: whoever asks once has enough for both.
  const int64_t rows = (call.d_out.empty() ? call.in[kA] : call.d_out[0]).dim(0);
  return parameter_chunks(rows) * 2 * static_cast<int64_t>(sizeof(float));
}

}  // namespace

MixRows mix_forward_rows(const OpCall& call) {
  MixRows p = arguments(call, call.out[0].dim(1));
  p.y = call.out[0].data;
  return p;
}

MixRows mix_scalar_rows(const OpCall& call) {
  MixRows p = arguments(call, call.d_out[0].dim(1));
  p.d_y = call.d_out[0].data;
  return p;
}

MixRows mix_backward_rows(const OpCall& call) {
  MixRows p = mix_scalar_rows(call);
  const GradSlot &d_a = call.d_in[kA], &d_b = call.d_in[kB];
  p.d_a = d_a.tensor.data, p.accumulate_a = d_a.accumulate;
  p.d_b = d_b.tensor.data, p.accumulate_b = d_b.accumulate;
  if (d_a.wanted()) p.a_type = d_a.tensor.dtype();
  if (d_b.wanted()) p.b_type = d_b.tensor.dtype();
  return p;
}

const Op& mix_op() {
  static const Op op{
      .name = "mix",
      .inputs = {{"a"},
                 {"b", InputKind::activation, true},
                 {"alpha", InputKind::parameter, true},
                 {"beta", InputKind::parameter, true}},
      .outputs = {{"y"}},
      .reads = reads,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels(
          "mix", {{"cpu", refuse_other_floats, forward, backward_input, nullptr}, mix_reference()}),
      .axis_rule = {.passes = kElementwise}};
  return op;
}

Value mix(Tape& tape, DType out, const Value& a_TW, const Value& b_TN, const Value& alpha_1,
          const Value& beta_1, int64_t first) {
  const MixAttr attr{out, first, alpha_1.defined(), beta_1.defined()};
  return tape.apply(mix_op(), attr, {a_TW, b_TN, alpha_1, beta_1}).front();
}

Value scale(Tape& tape, DType out, const Value& a_TW, double factor) {
  MixAttr attr;
  attr.out = out;
  attr.factor = factor;
  return tape.apply(mix_op(), attr, {a_TW, {}, {}, {}}).front();
}

}  // namespace ingot
