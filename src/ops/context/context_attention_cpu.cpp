// context_attention on the CPU: the kernel of ops/attention over parts of the keys. A block's documents lie in at most two
// chunks of each sequence, as this rank's queries do, so a block is four calls of the kernel, in each of which a document's
// queries meet one piece of its keys. Parts of o merge by log-sum-exp, in fp32; parts of cotangents add up.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/parallel.h"
#include "device/attention/attention.h"
#include "device/simd/vmath_scalar.h"
#include "ops/attention/kernels.h"
#include "ops/context/context_kernels.h"

namespace ingot {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Problem {
  explicit Problem(const OpCall& call, bool back)
      : attr(call.attr<ContextAttentionAttr>()),
        a(attr.attention),
        c(*attr.context.rows),
        qkv(call.in[0]),
        memory(call.scratch),
        pass(memory.pass(attr, qkv.dtype(), back)),
        parts(memory.kernel(attr, back)) {
    pack_keys(a, qkv, pass.own);
  }
  const ContextAttentionAttr& attr;
  const AttentionAttr& a;
  const ContextRows& c;
  const Tensor& qkv;
  ContextMemory memory;
  BlockPass pass;
  ContextParts parts;
};

/// The pieces of a rank's earlier (0) or later (1) chunks, by document: one at most.
std::map<int64_t, const ContextPiece*> half_of(const ContextRows& c, int rank, int half) {
  std::map<int64_t, const ContextPiece*> pieces;
  for (const ContextPiece& p : c.pieces(rank))
    if (p.row % (2 * c.chunk()) / c.chunk() == half) pieces.emplace(p.document, &p);
  return pieces;
}

/// Queries of this rank's half and the keys that they see of the other rank's half: positions count from the piece's first key.
std::vector<AttentionSpan> spans_of(const Problem& p, int from, int query_half, int key_half) {
  std::vector<AttentionSpan> spans;
  const auto queries = half_of(p.c, p.c.rank(), query_half), keys = half_of(p.c, from, key_half);
  for (const auto& [document, q] : queries) {
    const auto found = keys.find(document);
    if (found == keys.end() || found->second->first > q->first) continue;
    const ContextPiece& k = *found->second;
    if (AttentionWindow{p.a.window, p.a.window_block, q->phase}.first(q->first) >= k.first + k.rows) continue;
    spans.push_back({.first_row = q->row,
                     .rows = q->rows,
                     .past = q->first - k.first,
                     .phase = q->phase + k.first,
                     .key_row = k.row,
                     .keys = k.rows});
  }
  return spans;
}

/// Calls visit(spans) for the up to four pairs of chunks of a block.
template <class Visit>
void each_pair_of_chunks(const Problem& p, int from, const Visit& visit) {
  for (const int query_half : {0, 1})
    for (const int key_half : {0, 1})
      if (const auto spans = spans_of(p, from, query_half, key_half); !spans.empty()) visit(spans);
}

/// Everything but spans and outputs; keys and values are columns of the block.
AttentionArgs arguments(const Problem& p, const Tensor& block) {
  const AttentionAttr& a = p.a;
  AttentionArgs args;
  args.heads = a.heads, args.kv_heads = a.kv_heads, args.width = a.head_width, args.value_width = a.values();
  args.scale = static_cast<float>(attention_scale(a)), args.softcap = static_cast<float>(a.softcap);
  args.window = a.window, args.window_block = a.window_block;
  args.type = p.qkv.dtype();
  args.q = p.qkv.data, args.q_stride = a.packed_width();
  args.k = block.data,
  args.v = static_cast<const std::byte*>(block.data) + a.kv_heads * a.head_width * size_of(block.dtype());
  args.k_stride = args.v_stride = kv_width(a);
  args.o_stride = a.heads * a.values();
  return args;
}

/// Merges a part of the results of some rows into what there is.
void merge(const Problem& p, const std::vector<AttentionSpan>& spans, float* lse) {
  const int64_t heads = p.a.heads, width = p.a.values();
  const auto *o_part = p.parts.o_part.as<float>(), *lse_part = p.parts.lse_part.as<float>();
  auto* o = p.parts.o.as<float>();
  for (const AttentionSpan& s : spans)
    parallel_for(s.rows * heads, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = s.first_row * heads + begin; i < s.first_row * heads + end; ++i) {
        if (!(lse_part[i] > kNothing)) continue;
        const float top = std::max(lse[i], lse_part[i]);
        const float before = vmath::exp(lse[i] - top), part = vmath::exp(lse_part[i] - top),
                    sum = before + part;
        for (int64_t d = i * width; d < (i + 1) * width; ++d)
          o[d] = (before > 0 ? o[d] * (before / sum) : 0.0f) + o_part[d] * (part / sum);
        lse[i] = top + vmath::log(sum);
      }
    });
}

void forward(const OpCall& call) {
  const Problem p(call, false);
  auto *lse = call.out[1].as<float>(), *max_logit = call.out[2].as<float>();
  std::fill_n(lse, call.out[1].numel(), kNothing);
  std::fill_n(max_logit, p.a.heads, p.c.count() > 0 ? kNothing : 0.0f);
  std::vector<float> largest(static_cast<size_t>(p.a.heads));
  p.pass.run([&](int from, const Tensor& block, const Tensor&) {
    AttentionArgs args = arguments(p, block);
    args.o = p.parts.o_part.data, args.lse = p.parts.lse_part.as<float>(), args.max_logit = largest.data();
    each_pair_of_chunks(p, from, [&](const std::vector<AttentionSpan>& spans) {
      args.spans = spans.data(), args.span_count = static_cast<int64_t>(spans.size());
      attention_forward(args);
      merge(p, spans, lse);
      for (size_t h = 0; h < largest.size(); ++h) max_logit[h] = std::max(max_logit[h], largest[h]);
    });
  });
  const Tensor &o = call.out[0], &merged = p.parts.o;
  for (int64_t i = 0; i < o.numel(); ++i)
    if (o.dtype() == DType::bf16)
      o.as<bf16>()[i] = to_bf16(merged.as<float>()[i]);
    else
      o.as<float>()[i] = merged.as<float>()[i];
}

/// to += from for `rows` rows of `width` from row `first` on.
void add_rows(const Tensor& to, const Tensor& from, int64_t first, int64_t rows) {
  const int64_t width = to.dim(1);
  auto* y = to.as<float>() + first * width;
  const auto* x = from.as<float>() + first * width;
  for (int64_t i = 0; i < rows * width; ++i) y[i] += x[i];
}

void clear(const Tensor& t) {
  std::fill_n(t.as<float>(), t.numel(), 0.0f);
}

/// The cotangents of packed rows from those of their queries, and keys and values.
void write(const Problem& p, const GradSlot& slot) {
  const int64_t q_width = p.parts.d_q.dim(1), kv = kv_width(p.a), width = p.a.packed_width();
  const auto put = [&](int64_t at, float value) {
    if (slot.tensor.dtype() == DType::bf16) {
      auto* y = slot.tensor.as<bf16>();
      y[at] = to_bf16(slot.accumulate ? to_float(y[at]) + value : value);
    } else {
      auto* y = slot.tensor.as<float>();
      y[at] = slot.accumulate ? y[at] + value : value;
    }
  };
  for (int64_t r = 0; r < p.qkv.dim(0); ++r) {
    for (int64_t i = 0; i < q_width; ++i) put(r * width + i, p.parts.d_q.as<float>()[r * q_width + i]);
    for (int64_t i = 0; i < kv; ++i) put(r * width + q_width + i, p.pass.d_own.as<float>()[r * kv + i]);
  }
}

void backward(const OpCall& call) {
  const Problem p(call, true);
  const Tensor &d_q = p.parts.d_q, &d_q_part = p.parts.d_q_part, &d_kv_part = p.parts.d_kv_part;
  clear(d_q);
  p.pass.run([&](int from, const Tensor& block, const Tensor& d_block) {
    clear(d_block);
    AttentionBackwardArgs args;
    args.forward = arguments(p, block);
    args.forward.o = call.out[0].data, args.forward.o_type = call.out[0].dtype(),
    args.forward.lse = call.out[1].as<float>();
    args.d_o = call.d_out[0].data, args.d_o_stride = args.forward.o_stride;
    args.d_q = d_q_part.data, args.d_q_stride = d_q_part.dim(1);
    args.d_k = d_kv_part.data, args.d_v = d_kv_part.as<float>() + p.a.kv_heads * p.a.head_width;
    args.d_k_stride = args.d_v_stride = d_kv_part.dim(1);
    each_pair_of_chunks(p, from, [&](const std::vector<AttentionSpan>& spans) {
      args.forward.spans = spans.data(), args.forward.span_count = static_cast<int64_t>(spans.size());
      attention_backward(args);
      for (const AttentionSpan& s : spans) {
        add_rows(d_q, d_q_part, s.first_row, s.rows);
        add_rows(d_block, d_kv_part, s.key_row, s.keys);
      }
    });
  });
  write(p, call.d_in[0]);
}

const char* refuse(const OpCall& call) {
  for (const auto& list : {call.in, call.out, call.d_out})
    for (const Tensor& t : list)
      if (t.defined() && t.dtype() != DType::f32 && t.dtype() != DType::bf16)
        return "a type other than f32 and bf16";
  const AttentionAttr& a = call.attr<ContextAttentionAttr>().attention;
  return std::max(a.head_width, a.values()) > kAttentionMaxWidth ? "heads wider than 1024" : nullptr;
}

}  // namespace

Kernel context_attention_cpu() {
  return {"cpu", refuse, forward, backward, nullptr};
}

}  // namespace ingot
