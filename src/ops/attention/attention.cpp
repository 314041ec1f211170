// See attention.h: the op's description, and its CPU kernel: glue from packed rows and sequence states
// to device/attention/attention.h.
#include "ops/attention/attention.h"

#include <algorithm>
#include <vector>

#include "device/attention/attention_append.h"
#include "ops/attention/call.h"
#include "ops/attention/span_lists.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"

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
  const DType statistic = statistic_of(qkv);
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
      count += static_cast<double>(t - a.window_in(s).first(t) + 1);
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

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const AttentionAttr*>(attr_data);
  return fmt::format("heads={}/{}x{}/{} scale={} window={} softcap={} layer={}", a.heads, a.kv_heads,
                     a.head_width, a.values(), a.score_scale(), a.window, a.softcap, a.layer);
}

void forward(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const SpanLists& lists = SpanLists::of(call, SpanLists::Single::left);
  auto* max_logit = call.out[2].as<float>();
  std::vector<float> second(static_cast<size_t>(a.heads));
  AttentionArgs args = attention_arguments(call);
  lists.set_in_place(args);
  args.max_logit = max_logit;
  if (!lists.in_place.empty() || lists.paged.empty()) attention_forward(args);
  if (!lists.paged.empty()) {
    args.max_logit = lists.in_place.empty() ? max_logit : second.data();
    lists.set_paged(a, args);
    attention_forward(args, [&](int64_t span, int64_t head) { lists.write_row(span, head); });
    for (size_t h = 0; h < second.size() && !lists.in_place.empty(); ++h)
      max_logit[h] = std::max(max_logit[h], second[h]);
  }
  if (call.in[0].dim(0) == 0) std::fill_n(max_logit, a.heads, 0.0f);
}

void backward(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const Tensor& qkv = call.in[0];
  const GradSlot& slot = call.d_in[0];
  SequenceSpan whole;
  for (const SequenceSpan& s : spans_of(a.rows, qkv.dim(0), whole))
    INGOT_CHECK(s.state == nullptr, "attention has no backward through a cached sequence");
  const SpanLists& lists = SpanLists::of(call);
  // The kernel overwrites; a second consumer of qkv is rare enough for a buffer of its own.
  std::vector<std::byte> buffer(slot.accumulate ? static_cast<size_t>(qkv.bytes()) : 0);
  auto* d_qkv = slot.accumulate ? buffer.data() : static_cast<std::byte*>(slot.tensor.data);
  AttentionBackwardArgs args = attention_backward_arguments(call, d_qkv);
  lists.set_in_place(args.forward);
  attention_backward(args);
  if (slot.accumulate)
    copy_tensor(slot.tensor.data, slot.tensor.dtype(), d_qkv, qkv.dtype(), qkv.numel(), true);
}

}  // namespace

const char* refuse_attention(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  const auto& a = call.attr<AttentionAttr>();
  return std::max(a.head_width, a.values()) > kAttentionMaxWidth ? "heads wider than 1024" : nullptr;
}

AttentionArgs attention_arguments(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const Tensor& qkv = call.in[0];
  const int64_t size = size_of(qkv.dtype()), width = a.packed_width();
  AttentionArgs args;
  args.heads = a.heads, args.kv_heads = a.kv_heads, args.width = a.head_width, args.value_width = a.values();
  args.scale = static_cast<float>(a.score_scale());
  args.window = a.window, args.window_block = a.window_block;
  args.softcap = static_cast<float>(a.softcap);
  args.type = args.o_type = qkv.dtype();
  auto* first = static_cast<std::byte*>(qkv.data);
  args.q = first;
  args.k = first + a.heads * a.head_width * size;
  args.v = first + (a.heads + a.kv_heads) * a.head_width * size;
  args.q_stride = args.k_stride = args.v_stride = width;
  args.o = call.out[0].data;
  args.o_stride = a.heads * a.values();
  args.lse = device_address<float>(call.out[1]);
  return args;
}

AttentionBackwardArgs attention_backward_arguments(const OpCall& call, void* d_qkv) {
  const auto& a = call.attr<AttentionAttr>();
  const DType type = call.in[0].dtype();
  auto* const first = static_cast<std::byte*>(d_qkv);
  AttentionBackwardArgs args;
  args.forward = attention_arguments(call);
  args.d_o = call.d_out[0].data, args.d_o_stride = a.heads * a.values();
  args.d_type = type;
  args.d_q = first;
  args.d_k = first + a.heads * a.head_width * size_of(type);
  args.d_v = first + (a.heads + a.kv_heads) * a.head_width * size_of(type);
  args.d_q_stride = args.d_k_stride = args.d_v_stride = a.packed_width();
  return args;
}

const Op& attention_op() {
  static const Op op{
      .name = "attention",
      .inputs = {{"qkv"}, {"documents", InputKind::data, true}},
      .outputs = {{"o"}, {"lse", false}, {"max_logit", false}},
      .reads = always<BackwardReads{.input_in = 0b11, .input_out = 0b11}>,
      .infer = infer,
      .cost = cost,
      .print = print,
      .kernels = with_gpu_kernels(
          "attention", {{"cpu", refuse_attention, forward, backward, nullptr}, attention_reference()}),
      .axis_rule = {.passes = kHeadwise, .along_sequence = true}};
  return op;
}

AttentionResult attention(Tape& tape, const AttentionAttr& attr, const Value& qkv_TW,
                          const Value& documents) {
  auto out = tape.apply(attention_op(), attr, {qkv_TW, documents});
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

}  // namespace ingot
