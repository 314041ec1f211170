// See attention.h: the op's description.
#include "ops/attention/attention.h"

#include "ops/attention/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<AttentionAttr>();
  const Tensor& qkv = call.in[0];
  INGOT_CHECK(a.heads > 0 && a.kv_heads > 0 && a.head_width > 0 && a.value_width >= 0 &&
                  a.heads % a.kv_heads == 0 && a.window >= 0 && a.softcap >= 0 && a.scale >= 0 &&
                  (a.window_block == 0 || a.window % a.window_block == 0),
              "{} heads, {} key heads of {}, window {} in blocks of {}, cap {}", a.heads, a.kv_heads,
              a.head_width, a.window, a.window_block, a.softcap);
  INGOT_CHECK(qkv.shape().rank() == 2 && qkv.dim(1) == a.packed_width(), "qkv is {}", qkv.meta.str());
  SequenceSpan whole;
  spans_of(a.rows, qkv.dim(0), whole);
  const DType statistic = qkv.dtype() == DType::f64 ? DType::f64 : DType::f32;
  out[0] = {Shape{qkv.dim(0), a.heads * a.values()}, qkv.dtype()};
  out[1] = {Shape{qkv.dim(0), a.heads}, statistic};
  out[2] = {Shape{a.heads}, statistic};
}

/// Pairs (query, key) that are not masked, of one head.
double pairs(const AttentionAttr& a, int64_t rows) {
  SequenceSpan whole;
  double count = 0;
  for (const SequenceSpan& s : spans_of(a.rows, rows, whole))
    for (int64_t t = s.past; t < s.past + s.rows; ++t)
      count += static_cast<double>(t - attention_window(a, s).first(t) + 1);
  return count;
}

OpCost cost(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const double channel = 2 * pairs(a, call.in[0].dim(0)) * static_cast<double>(a.heads);
  const double scores = channel * static_cast<double>(a.head_width),
               sums = channel * static_cast<double>(a.values());
  double bytes = static_cast<double>(call.in[0].bytes());
  for (const Tensor& t : call.out) bytes += static_cast<double>(t.bytes());
  return {scores + sums, 3 * scores + 2 * sums, 0, bytes};
}

BackwardReads reads(const void*) {
  return {0b1, 0b11, 0, 0};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const AttentionAttr*>(attr_data);
  return fmt::format("heads={}/{}x{}/{} scale={} window={} softcap={} layer={}", a.heads, a.kv_heads,
                     a.head_width, a.values(), attention_scale(a), a.window, a.softcap, a.layer);
}

}  // namespace

const Op& attention_op() {
  static const Op op{"attention", {{"qkv"}}, {{"o"}, {"lse", false}, {"max_logit", false}},
                     reads,       infer,     cost,
                     nullptr,     print,     attention_kernels()};
  return op;
}

AttentionResult attention(Tape& tape, const AttentionAttr& attr, const Value& qkv_TW) {
  auto out = tape.apply(attention_op(), attr, {qkv_TW});
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

}  // namespace ingot
