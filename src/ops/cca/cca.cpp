// See cca.h: the op's description.
#include "ops/cca/cca.h"

#include "ops/cca/kernels.h"

namespace ingot {
namespace {

using namespace cca_input;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<CcaAttr>();
  const Tensor& qkv = call.in[kQkv];
  const int64_t heads = a.heads + a.kv_heads, channels = heads * a.head_width;
  INGOT_CHECK(a.heads > 0 && a.kv_heads > 0 && a.head_width > 0 && a.heads % a.kv_heads == 0 &&
                  (a.delayed >= 0 || a.kv_heads * a.head_width % 2 == 0) &&
                  a.delayed_channels() <= a.kv_heads * a.head_width && a.rotary.dims >= 0 &&
                  a.rotary.dims % 2 == 0 && a.rotary.dims <= a.head_width,
              "{} + {} heads of {}, {} of them rotary", a.heads, a.kv_heads, a.head_width, a.rotary.dims);
  INGOT_CHECK(qkv.shape().rank() == 2 && qkv.dim(1) == channels + a.kv_heads * a.head_width, "qkv is {}",
              qkv.meta.str());
  const DType small = qkv.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const TensorMeta expected[] = {qkv.meta,
                                 {Shape{qkv.dim(0)}, DType::i32},
                                 {Shape{channels, 2}, small},
                                 {Shape{channels}, small},
                                 {Shape{heads, a.head_width, 2 * a.head_width}, call.in[kGrouped].dtype()},
                                 {Shape{channels}, small},
                                 {Shape{a.kv_heads}, small}};
  for (size_t i = 0; i < call.in.size(); ++i)
    INGOT_CHECK(call.in[i].shape() == expected[i].shape && call.in[i].dtype() == expected[i].dtype,
                "input {} is {}, expected {}", i, call.in[i].meta.str(), expected[i].str());
  SequenceSpan whole;
  spans_of(a.rows, qkv.dim(0), whole);
  out[0] = {qkv.shape(), a.out};
  out[1] = {Shape{qkv.dim(0), heads}, small};
}

OpCost cost(const OpCall& call) {
  const auto& a = call.attr<CcaAttr>();
  const auto rows = static_cast<double>(call.in[kQkv].dim(0)), width = static_cast<double>(a.head_width);
  const double product = 4 * rows * static_cast<double>(a.heads + a.kv_heads) * width * width;
  const double small = 20 * static_cast<double>(call.in[kQkv].numel());
  double bytes = static_cast<double>(call.out[0].bytes() + call.out[1].bytes());
  for (const Tensor& t : call.in) bytes += static_cast<double>(t.bytes());
  return {product + small, (a.backward_reads_result() ? 2 : 3) * product + 2 * small, 0, bytes};
}

BackwardReads reads(const void* attr) {
  return {0b1111111, static_cast<const CcaAttr*>(attr)->backward_reads_result() ? 0b11u : 0u, 0, 0};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const CcaAttr*>(attr_data);
  return fmt::format("heads={}/{}x{} rotary={} {} theta={} out={} layer={}", a.heads, a.kv_heads,
                     a.head_width, a.rotary.dims, name_of(a.rotary.kind), a.rotary.theta, name_of(a.out),
                     a.layer);
}

}  // namespace

const Op& cca_op() {
  static const Op op{"cca",
                     {{"qkv"},
                      {"positions", InputKind::data},
                      {"depthwise", InputKind::parameter},
                      {"depthwise_bias", InputKind::parameter},
                      {"grouped", InputKind::parameter},
                      {"grouped_bias", InputKind::parameter},
                      {"temperature", InputKind::parameter}},
                     {{"qkv"}, {"inverse_norms", false}},
                     reads,
                     infer,
                     cost,
                     cca_scratch_bytes,
                     print,
                     cca_kernels()};
  return op;
}

Value cca(Tape& tape, const CcaAttr& attr, const Value& qkv_TW, const Value& positions_T,
          const CcaParams& params) {
  return tape.apply(cca_op(), attr,
                    {qkv_TW, positions_T, params.depthwise, params.depthwise_bias, params.grouped,
                     params.grouped_bias, params.temperature})[0];
}

}  // namespace ingot
