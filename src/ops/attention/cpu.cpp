// attention on the CPU: glue from packed rows and sequence states to device/attention/attention.h.
#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "device/attention/attention.h"
#include "ops/attention/kernels.h"
#include "ops/sequence/sequence_store.h"

namespace ingot {
namespace {

static_assert(kAttentionBlock == SequenceState::kPageTokens);

const char* refuse(const OpCall& call) {
  for (const auto& list : {call.in, call.out, call.d_out})
    for (const Tensor& t : list)
      if (t.defined() && t.dtype() != DType::f32 && t.dtype() != DType::bf16)
        return "a type other than f32 and bf16";
  const auto& a = call.attr<AttentionAttr>();
  return std::max(a.head_width, a.values()) > kAttentionMaxWidth ? "heads wider than 1024" : nullptr;
}

/// Everything but the spans. q, k and v are columns of the packed rows.
AttentionArgs arguments(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const Tensor& qkv = call.in[0];
  const int64_t size = size_of(qkv.dtype()), width = a.packed_width();
  AttentionArgs args;
  args.heads = a.heads, args.kv_heads = a.kv_heads, args.width = a.head_width, args.value_width = a.values();
  args.scale = static_cast<float>(attention_scale(a));
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
  args.lse = call.out[1].as<float>();
  return args;
}

/// Spans whose keys lie in the call's rows, and spans whose keys lie in pages (this call's included, once
/// appended).
struct SpanLists {
  std::vector<AttentionSpan> in_place, paged;
  std::vector<std::vector<const void*>> blocks;  ///< per paged span: keys, then values

  SpanLists(const AttentionAttr& a, const Tensor& qkv) {
    SequenceSpan whole;
    const auto spans = spans_of(a.rows, qkv.dim(0), whole);
    blocks.reserve(spans.size());
    for (const SequenceSpan& s : spans) {
      if (s.rows == 0) continue;
      if (s.state == nullptr) {
        in_place.push_back({s.row_begin, s.rows, 0, nullptr, nullptr, s.phase});
        continue;
      }
      s.state->append_kv(a.layer, s.past, qkv.slice(s.row_begin, s.row_begin + s.rows));
      const int64_t pages = SequenceStore::pages_for(s.past + s.rows);
      auto& list = blocks.emplace_back();
      for (int64_t p = 0; p < pages; ++p) list.push_back(s.state->keys(a.layer, p));
      for (int64_t p = 0; p < pages; ++p) list.push_back(s.state->values(a.layer, p));
      paged.push_back({s.row_begin, s.rows, s.past, list.data(), list.data() + pages, s.phase});
    }
  }
};

void forward(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const SpanLists lists(a, call.in[0]);
  auto* max_logit = call.out[2].as<float>();
  std::vector<float> second(static_cast<size_t>(a.heads));
  AttentionArgs args = arguments(call);
  args.spans = lists.in_place.data(), args.span_count = static_cast<int64_t>(lists.in_place.size());
  args.max_logit = max_logit;
  if (!lists.in_place.empty() || lists.paged.empty()) attention_forward(args);
  if (!lists.paged.empty()) {
    args.spans = lists.paged.data(), args.span_count = static_cast<int64_t>(lists.paged.size());
    args.max_logit = lists.in_place.empty() ? max_logit : second.data();
    args.k_stride = a.head_width, args.v_stride = a.values();
    args.k_head = kAttentionBlock * a.head_width, args.v_head = kAttentionBlock * a.values();
    attention_forward(args);
    for (size_t h = 0; h < second.size() && !lists.in_place.empty(); ++h)
      max_logit[h] = std::max(max_logit[h], second[h]);
  }
  if (call.in[0].dim(0) == 0) std::fill_n(max_logit, a.heads, 0.0f);
}

template <class T>
void add(T* to, const T* from, int64_t count) {
  parallel_for(count, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if constexpr (std::is_same_v<T, bf16>)
        to[i] = to_bf16(to_float(to[i]) + to_float(from[i]));
      else
        to[i] += from[i];
  });
}

void backward(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const Tensor& qkv = call.in[0];
  const GradSlot& slot = call.d_in[0];
  SequenceSpan whole;
  for (const SequenceSpan& s : spans_of(a.rows, qkv.dim(0), whole))
    INGOT_CHECK(s.state == nullptr, "attention has no backward through a cached sequence");
  const SpanLists lists(a, qkv);
  // The kernel overwrites; a second consumer of qkv is rare enough for a buffer of its own.
  std::vector<std::byte> buffer(slot.accumulate ? static_cast<size_t>(qkv.bytes()) : 0);
  auto* d_qkv = slot.accumulate ? buffer.data() : static_cast<std::byte*>(slot.tensor.data);
  const int64_t size = size_of(qkv.dtype()), width = a.packed_width();
  AttentionBackwardArgs args;
  args.forward = arguments(call);
  args.forward.spans = lists.in_place.data(),
  args.forward.span_count = static_cast<int64_t>(lists.in_place.size());
  args.d_o = call.d_out[0].data, args.d_o_stride = a.heads * a.values();
  args.d_type = qkv.dtype();
  args.d_q = d_qkv;
  args.d_k = d_qkv + a.heads * a.head_width * size;
  args.d_v = d_qkv + (a.heads + a.kv_heads) * a.head_width * size;
  args.d_q_stride = args.d_k_stride = args.d_v_stride = width;
  attention_backward(args);
  if (!slot.accumulate) return;
  if (qkv.dtype() == DType::bf16)
    add(slot.tensor.as<bf16>(), reinterpret_cast<const bf16*>(d_qkv), qkv.numel());
  else
    add(slot.tensor.as<float>(), reinterpret_cast<const float*>(d_qkv), qkv.numel());
}

}  // namespace

std::vector<Kernel> attention_kernels() {
  return {{"cpu", refuse, forward, backward, nullptr}, attention_reference()};
}

}  // namespace ingot
