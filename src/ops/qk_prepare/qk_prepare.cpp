// See qk_prepare.h: the op's description.
#include "ops/qk_prepare/qk_prepare.h"

#include "ops/qk_prepare/kernels.h"

namespace ingot {
namespace {

enum In : uint32_t { kQkv, kPositions, kQWeight, kKWeight };

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<QkPrepareAttr>();
  const Tensor& qkv = call.in[kQkv];
  INGOT_CHECK(a.heads > 0 && a.kv_heads > 0 && a.head_width > 0 && a.rotary.dims >= 0 &&
                  a.rotary.dims % 2 == 0 && a.rotary.dims <= a.head_width,
              "{} + {} heads of {}, {} of them rotary", a.heads, a.kv_heads, a.head_width, a.rotary.dims);
  INGOT_CHECK(qkv.shape().rank() == 2 && qkv.dim(1) == (a.heads + 2 * a.kv_heads) * a.head_width, "qkv is {}",
              qkv.meta.str());
  INGOT_CHECK(
      call.in[kPositions].meta.shape == Shape{qkv.dim(0)} && call.in[kPositions].dtype() == DType::i32,
      "positions are {}", call.in[kPositions].meta.str());
  const DType statistic = qkv.dtype() == DType::f64 ? DType::f64 : DType::f32;
  for (const uint32_t i : {kQWeight, kKWeight})
    INGOT_CHECK(!call.in[i].defined() || (a.norm && call.in[i].meta.shape == Shape{a.head_width} &&
                                          call.in[i].dtype() == statistic),
                "norm {}, weight is {}", a.norm, call.in[i].meta.str());
  out[0] = {qkv.shape(), a.out};
  out[1] = {Shape{a.norm ? qkv.dim(0) : 0, a.heads + a.kv_heads}, statistic};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[kQkv].numel());
  return {8 * n, 16 * n, 0, static_cast<double>(call.in[kQkv].bytes() + call.out[0].bytes())};
}

BackwardReads reads(const void* attr_data) {
  BackwardReads r;
  r.input_in = 1u << kPositions;
  if (static_cast<const QkPrepareAttr*>(attr_data)->norm) {
    r.input_in |= 1u << kQkv | 1u << kQWeight | 1u << kKWeight;
    r.input_out = 0b10;
  }
  return r;
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const QkPrepareAttr*>(attr_data);
  return fmt::format("heads={}/{}x{} rotary={} {} theta={} norm={} eps={} out={}", a.heads, a.kv_heads,
                     a.head_width, a.rotary.dims, name_of(a.rotary.kind), a.rotary.theta, a.norm, a.eps,
                     name_of(a.out));
}

}  // namespace

const Op& qk_prepare_op() {
  static const Op op{"qk_prepare",
                     {{"qkv"},
                      {"positions", InputKind::data},
                      {"q_weight", InputKind::parameter, true},
                      {"k_weight", InputKind::parameter, true}},
                     {{"qkv"}, {"rstd", false}},
                     reads,
                     infer,
                     cost,
                     qk_prepare_scratch_bytes,
                     print,
                     qk_prepare_kernels()};
  return op;
}

Value qk_prepare(Tape& tape, const QkPrepareAttr& attr, const Value& qkv_TW, const Value& positions_T,
                 const Value& q_weight_K, const Value& k_weight_K) {
  return tape.apply(qk_prepare_op(), attr, {qkv_TW, positions_T, q_weight_K, k_weight_K})[0];
}

}  // namespace ingot
