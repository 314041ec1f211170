// See add_norm.h: the op's description, and its CPU kernel: rows in parallel, parameter gradients by
// chunks of rows.
#include "ops/add_norm/add_norm.h"

#include <algorithm>
#include <cstring>

#include "ops/add_norm/call.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

using namespace add_norm_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& attr = call.attr<AddNormAttr>();
  const Tensor& x = call.in[kX];
  INGOT_CHECK(x.shape().rank() == 2, "x is {}", x.meta.str());
  const int64_t rows = x.dim(0), width = x.dim(1);
  const bool has_y = attr.merge == MergeKind::add || attr.merge == MergeKind::scaled;
  INGOT_CHECK(call.in[kY].defined() == has_y && (!has_y || call.in[kY].shape() == x.shape()));
  for (const uint32_t i : {kStreamScale, kStreamBias})
    INGOT_CHECK(call.in[i].defined() == (attr.merge == MergeKind::affine || attr.merge == MergeKind::scaled));
  for (const uint32_t i : {kYScale, kYBias})
    INGOT_CHECK(call.in[i].defined() == (attr.merge == MergeKind::scaled));
  for (uint32_t i = kStreamScale; i <= kBias; ++i)
    INGOT_CHECK(
        !call.in[i].defined() || (call.in[i].meta.shape == Shape{width} && call.in[i].dtype() == x.dtype()),
        "vector {} is {}", i, call.in[i].meta.str());
  out[kStream] = {attr.merge == MergeKind::none ? Shape{0, width} : x.shape(), x.dtype()};
  out[kH] = {x.shape(), attr.h_dtype};
  out[kRstd] = {Shape{rows}, x.dtype()};
  out[kMean] = {attr.norm == NormKind::layer ? Shape{rows} : Shape{0}, x.dtype()};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[kX].numel());
  return {8 * n, 16 * n, 0, tensor_bytes(call)};
}

BackwardReads reads(const void* attr_data) {
  const auto& attr = *static_cast<const AddNormAttr*>(attr_data);
  BackwardReads r;
  r.input_in = slot_bit(kWeight);
  r.input_out = slot_bit(kRstd);
  if (attr.norm == NormKind::layer) r.input_out |= slot_bit(kMean);
  if (attr.merge == MergeKind::none)
    r.input_in |= slot_bit(kX);
  else
    r.input_out |= slot_bit(kStream);
  if (attr.merge == MergeKind::affine)
    r.input_in |= slot_bit(kX) | slot_bit(kStreamScale) | slot_bit(kStreamBias);
  if (attr.merge == MergeKind::scaled)
    r.input_in |= slot_bit(kX) | slot_bit(kY) | slot_bit(kStreamScale) | slot_bit(kStreamBias) |
                  slot_bit(kYScale) | slot_bit(kYBias);
  return r;
}

/// Once the stream is merged, the norm needs nothing else.
std::optional<PartialRecompute> partial_recompute(const void* attr_data) {
  auto attr = *static_cast<const AddNormAttr*>(attr_data);
  if (attr.merge == MergeKind::none) return std::nullopt;
  attr.merge = MergeKind::none;
  return PartialRecompute{
      .output = kStream, .input = kX, .others = slot_bit(kWeight) | slot_bit(kBias), .attr = AttrBox(attr)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const AddNormAttr*>(attr_data);
  return fmt::format("norm={} merge={} eps={} offset={} h={}", name_of(a.norm), name_of(a.merge), a.eps,
                     a.weight_offset, name_of(a.h_dtype));
}

/// What forward and backward share; absent tensors become nullptr.
AddNormRows arguments(const OpCall& call) {
  const auto& a = call.attr<AddNormAttr>();
  AddNormRows p{};
  p.width = add_norm_width(call);
  p.merge = a.merge;
  p.layer = a.norm == NormKind::layer;
  p.eps = static_cast<float>(a.eps), p.weight_offset = static_cast<float>(a.weight_offset);
  const auto f32 = [](const Tensor& t) { return device_address<float>(t); };
  p.x = f32(call.in[kX]);
  p.y = call.in[kY].data, p.y_type = call.in[kY].dtype();
  p.stream_scale = f32(call.in[kStreamScale]), p.stream_bias = f32(call.in[kStreamBias]);
  p.y_scale = f32(call.in[kYScale]), p.y_bias = f32(call.in[kYBias]);
  p.weight = f32(call.in[kWeight]), p.bias = f32(call.in[kBias]);
  p.s = f32(call.out[kStream]);
  p.h_type = a.h_dtype;
  p.rstd = f32(call.out[kRstd]), p.mean = f32(call.out[kMean]);
  return p;
}

void forward(const OpCall& call) {
  const AddNormRows p = add_norm_forward_rows(call);
  const int64_t grain = std::clamp<int64_t>(16384 / std::max<int64_t>(p.width, 1), 1, 64);
  parallel_kernel(call.in[kX].dim(0), grain, INGOT_ISA_CALL(add_norm_forward), p);
}

/// Multiplies n partial sums by a vector: the gradients of the merge's biases are scale times the sum over
/// the stream's.
void scaled_copy(float* to, const float* from, const float* scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * scale[i];
}

void backward(const OpCall& call) {
  const AddNormRows p = add_norm_backward_rows(call);
  const int64_t rows = call.out[kRstd].dim(0), D = p.width, chunks = parameter_chunks(rows),
                stride = kAddNormSums * D;
  auto* partials = static_cast<float*>(call.scratch);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      float* s = partials + chunk * stride;
      std::memset(s, 0, static_cast<size_t>(stride) * sizeof(float));
      const int64_t begin = chunk * kParameterChunkRows;
      INGOT_ISA_CALL(add_norm_backward)
      (p, begin, std::min(rows, begin + kParameterChunkRows), {s, s + D, s + 2 * D, s + 3 * D, s + 4 * D});
    }
  });
  const auto combine = [&](int64_t sum, uint32_t input) {
    combine_parameter_chunks(partials + sum * D, chunks, stride, D, call.d_in[input]);
  };
  combine(0, kWeight);
  combine(1, kBias);
  combine(3, kStreamScale);
  combine(4, kYScale);
  for (const auto& [bias, scale] : {std::pair{kStreamBias, p.stream_scale}, {kYBias, p.y_scale}}) {
    if (!call.d_in[bias].wanted()) continue;
    // The sums of the first two kinds are used up: their place holds the scaled ones, chunk by chunk.
    for (int64_t c = 0; c < chunks; ++c)
      scaled_copy(partials + c * stride, partials + c * stride + 2 * D, scale, D);
    combine(0, bias);
  }
}

int64_t scratch_bytes(const OpCall& call) {
  const int64_t rows = call.out[kRstd].dim(0);
  const MergeKind merge = call.attr<AddNormAttr>().merge;
  const int64_t terms = merge == MergeKind::affine || merge == MergeKind::scaled ? 2 * rows : 0;
  return (parameter_chunks(rows) * kAddNormSums * add_norm_width(call) + terms) *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace

AddNormRows add_norm_forward_rows(const OpCall& call) {
  AddNormRows p = arguments(call);
  p.h = call.out[kH].data;
  return p;
}

AddNormRows add_norm_backward_rows(const OpCall& call) {
  AddNormRows p = arguments(call);
  if (p.merge != MergeKind::none)  // else that output is empty
    p.d_s = device_address<const float>(call.d_out[kStream]);
  p.d_h = call.d_out[kH].data;
  p.d_x = device_address<float>(call.d_in[kX].tensor), p.accumulate_x = call.d_in[kX].accumulate;
  p.d_y = call.d_in[kY].tensor.data, p.accumulate_y = call.d_in[kY].accumulate;
  if (p.d_y != nullptr) p.y_type = call.d_in[kY].tensor.dtype();
  return p;
}

const char* refuse_add_norm(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  for (const Tensor& t : {call.in[kX], call.in[kWeight], call.out.empty() ? Tensor() : call.out[kRstd]})
    if (t.defined() && t.dtype() != DType::f32) return "a stream other than f32";
  return nullptr;
}

const Op& add_norm_op() {
  static const Op op{
      .name = "add_norm",
      .inputs = {{"x"},
                 {"y", InputKind::activation, true},
                 {"stream_scale", InputKind::parameter, true},
                 {"stream_bias", InputKind::parameter, true},
                 {"y_scale", InputKind::parameter, true},
                 {"y_bias", InputKind::parameter, true},
                 {"weight", InputKind::parameter, true},
                 {"bias", InputKind::parameter, true}},
      .outputs = {{"stream"}, {"h"}, {"rstd", false}, {"mean", false}},
      .reads = reads,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels(
          "add_norm", {{"cpu", refuse_add_norm, forward, backward, nullptr}, add_norm_reference()}),
      .partial_recompute = partial_recompute,
      .axis_rule = {.passes = kRowwise}};
  return op;
}

AddNormResult add_norm(Tape& tape, const AddNormAttr& attr, const Value& x_TD, const Value& y_TD,
                       const MergeParams& merge, const Value& weight_D, const Value& bias_D) {
  auto out = tape.apply(
      add_norm_op(), attr,
      {x_TD, y_TD, merge.stream_scale, merge.stream_bias, merge.y_scale, merge.y_bias, weight_D, bias_D});
  return {attr.merge == MergeKind::none ? x_TD : std::move(out[kStream]), std::move(out[kH]),
          std::move(out[kRstd]), std::move(out[kMean])};
}

}  // namespace ingot
