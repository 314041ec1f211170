// See add_norm.h: the op's description and the glue to its kernels.
#include "ops/add_norm/add_norm.h"

#include "ops/add_norm/kernels.h"

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
  return fmt::format("norm={} merge={} eps={} h={}", name_of(a.norm), name_of(a.merge), a.eps,
                     name_of(a.h_dtype));
}

}  // namespace

const Op& add_norm_op() {
  static const Op op{.name = "add_norm",
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
                     .scratch_bytes = add_norm_scratch_bytes,
                     .print = print,
                     .kernels = add_norm_kernels(),
                     .partial_recompute = partial_recompute};
  return op;
}

AddNormResult add_norm(Tape& tape, const AddNormAttr& attr, const Value& x_TD, const Value& y_TD,
                       const MergeParams& merge, const Value& weight_D, const Value& bias_D) {
  auto out = tape.apply(
      add_norm_op(), attr,
      {x_TD, y_TD, merge.stream_scale, merge.stream_bias, merge.y_scale, merge.y_bias, weight_D, bias_D});
  return {attr.merge == MergeKind::none ? x_TD : std::move(out[kStream]), std::move(out[kH])};
}

}  // namespace ingot
