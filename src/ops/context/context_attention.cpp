// See context_attention.h: the op's description, and its CPU kernel: the kernel of ops/attention over parts
// of the keys. A block's documents lie in at most two chunks of each sequence, as this rank's queries do, so
// a block is four calls of the kernel, in each of which a document's queries meet one piece of its keys.
// Partial results of o merge by log-sum-exp, in fp32; partial sums of cotangents add up.
#include "ops/context/context_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "device/attention/attention.h"
#include "device/simd/vmath_scalar.h"
#include "ops/collective/transfer.h"
#include "ops/common.h"
#include "ops/context/block_pass.h"

namespace ingot {
namespace {

int64_t scratch_bytes(const OpCall& call) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  const DType type = call.in[0].dtype();
  ContextMemory m(nullptr);
  m.pass(attr, type, !call.d_in.empty());
  if (type != DType::f64) m.kernel(attr, !call.d_in.empty());
  return m.bytes();
}

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  const AttentionAttr& a = attr.attention;
  const Tensor& qkv = call.in[0];
  INGOT_CHECK(
      qkv.shape() == (Shape{attr.context.rows->count(), a.packed_width()}) && a.heads % a.kv_heads == 0,
      "qkv is {}", qkv.meta.str());
  const DType statistic = statistic_of(qkv);
  out[0] = {Shape{qkv.dim(0), a.heads * a.values()}, qkv.dtype()};
  out[1] = {Shape{qkv.dim(0), a.heads}, statistic};
  out[2] = {Shape{a.heads}, statistic};
}

/// Pairs of the rank's queries and the keys that they see; wire: n - 1 blocks, and in backward as many with
/// cotangents.
OpCost cost(const OpCall& call) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  const AttentionAttr& a = attr.attention;
  double pairs = 0;
  for (const ContextPiece& p : attr.context.rows->pieces(attr.context.rows->rank()))
    for (int64_t t = p.first; t < p.first + p.rows; ++t)
      pairs += static_cast<double>(t - AttentionWindow{a.window, a.window_block, p.phase}.first(t) + 1);
  const double channel = 2 * pairs * static_cast<double>(a.heads);
  const double scores = channel * static_cast<double>(a.head_width),
               sums = channel * static_cast<double>(a.values());
  OpCost c{scores + sums, 3 * scores + 2 * sums, 0, tensor_bytes(call)};
  const auto values = static_cast<double>(attr.context.rows->count() * kv_width(a));
  const double others = attr.context.rows->ranks() - 1,
               block = values * static_cast<double>(size_of(call.in[0].dtype()));
  c.wire_bytes[0] = others * block;
  c.wire_bytes[1] = others * block + (others + (attr.ring ? 1 : 0)) * values *
                                         static_cast<double>(size_of(statistic_of(call.in[0])));
  return c;
}

void dry_run(const OpCall& call, bool back) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  BlockPass::dry_run(group_of(attr.context.comm), attr.ring, back);
}

std::string print(const void* attr_data) {
  const auto& attr = *static_cast<const ContextAttentionAttr*>(attr_data);
  const AttentionAttr& a = attr.attention;
  return fmt::format("{} heads={}/{}x{}/{} scale={} window={} softcap={}", attr.ring ? "ring" : "gather",
                     a.heads, a.kv_heads, a.head_width, a.values(), a.score_scale(), a.window, a.softcap);
}

constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Problem {
  explicit Problem(const OpCall& call, bool back)
      : attr(call.attr<ContextAttentionAttr>()),
        a(attr.attention),
        c(*attr.context.rows),
        qkv(call.in[0]),
        memory(call.scratch),
        pass(memory.pass(attr, qkv.dtype(), back)),
        scratch(memory.kernel(attr, back)) {
    pack_keys(a, qkv, pass.own);
  }
  const ContextAttentionAttr& attr;
  const AttentionAttr& a;
  const ContextRows& c;
  const Tensor& qkv;
  ContextMemory memory;
  BlockPass pass;
  ContextScratch scratch;
};

/// The pieces of a rank's earlier (0) or later (1) chunks, by document: one at most.
std::map<int64_t, const ContextPiece*> half_of(const ContextRows& c, int rank, int half) {
  std::map<int64_t, const ContextPiece*> pieces;
  for (const ContextPiece& p : c.pieces(rank))
    if (p.row % (2 * c.chunk()) / c.chunk() == half) pieces.emplace(p.document, &p);
  return pieces;
}

/// Queries of this rank's half and the keys that they see of the other rank's half: positions count from the
/// piece's first key.
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
  args.scale = static_cast<float>(a.score_scale()), args.softcap = static_cast<float>(a.softcap);
  args.window = a.window, args.window_block = a.window_block;
  args.type = p.qkv.dtype();
  args.q = p.qkv.data, args.q_stride = a.packed_width();
  args.k = block.data,
  args.v = static_cast<const std::byte*>(block.data) + a.kv_heads * a.head_width * size_of(block.dtype());
  args.k_stride = args.v_stride = kv_width(a);
  args.o_stride = a.heads * a.values();
  return args;
}

/// Merges partial results of some rows into what there is.
void merge(const Problem& p, const std::vector<AttentionSpan>& spans, float* lse) {
  const int64_t heads = p.a.heads, width = p.a.values();
  const auto *partial_o = p.scratch.partial_o.as<float>(), *partial_lse = p.scratch.partial_lse.as<float>();
  auto* o = p.scratch.o.as<float>();
  for (const AttentionSpan& s : spans)
    parallel_for(s.rows * heads, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = s.first_row * heads + begin; i < s.first_row * heads + end; ++i) {
        if (!(partial_lse[i] > kNothing)) continue;
        const float top = std::max(lse[i], partial_lse[i]);
        const float before = vmath::exp(lse[i] - top), part = vmath::exp(partial_lse[i] - top),
                    sum = before + part;
        for (int64_t d = i * width; d < (i + 1) * width; ++d)
          o[d] = (before > 0 ? o[d] * (before / sum) : 0.0f) + partial_o[d] * (part / sum);
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
    args.o = p.scratch.partial_o.data, args.lse = p.scratch.partial_lse.as<float>(),
    args.max_logit = largest.data();
    each_pair_of_chunks(p, from, [&](const std::vector<AttentionSpan>& spans) {
      args.spans = spans.data(), args.span_count = static_cast<int64_t>(spans.size());
      attention_forward(args);
      merge(p, spans, lse);
      for (size_t h = 0; h < largest.size(); ++h) max_logit[h] = std::max(max_logit[h], largest[h]);
    });
  });
  const Tensor& o = call.out[0];
  copy_tensor(o.data, o.dtype(), p.scratch.o.data, DType::f32, o.numel(), false);
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
  const int64_t q_width = p.scratch.d_q.dim(1), width = p.a.packed_width();
  const auto put = [&](int64_t to, const Tensor& from, int64_t row) {
    INGOT_ISA_CALL(array_copy)
    (element(slot.tensor, to), slot.tensor.dtype(), element(from, row * from.dim(1)), DType::f32, from.dim(1),
     slot.accumulate);
  };
  for (int64_t r = 0; r < p.qkv.dim(0); ++r) {
    put(r * width, p.scratch.d_q, r);
    put(r * width + q_width, p.pass.d_own, r);
  }
}

void backward(const OpCall& call) {
  const Problem p(call, true);
  const Tensor &d_q = p.scratch.d_q, &partial_d_q = p.scratch.partial_d_q,
               &partial_d_kv = p.scratch.partial_d_kv;
  clear(d_q);
  p.pass.run([&](int from, const Tensor& block, const Tensor& d_block) {
    clear(d_block);
    AttentionBackwardArgs args;
    args.forward = arguments(p, block);
    args.forward.o = call.out[0].data, args.forward.o_type = call.out[0].dtype(),
    args.forward.lse = call.out[1].as<float>();
    args.d_o = call.d_out[0].data, args.d_o_stride = args.forward.o_stride;
    args.d_q = partial_d_q.data, args.d_q_stride = partial_d_q.dim(1);
    args.d_k = partial_d_kv.data, args.d_v = partial_d_kv.as<float>() + p.a.kv_heads * p.a.head_width;
    args.d_k_stride = args.d_v_stride = partial_d_kv.dim(1);
    each_pair_of_chunks(p, from, [&](const std::vector<AttentionSpan>& spans) {
      args.forward.spans = spans.data(), args.forward.span_count = static_cast<int64_t>(spans.size());
      attention_backward(args);
      for (const AttentionSpan& s : spans) {
        add_rows(d_q, partial_d_q, s.first_row, s.rows);
        add_rows(d_block, partial_d_kv, s.key_row, s.keys);
      }
    });
  });
  write(p, call.d_in[0]);
}

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  const AttentionAttr& a = call.attr<ContextAttentionAttr>().attention;
  return std::max(a.head_width, a.values()) > kAttentionMaxWidth ? "heads wider than 1024" : nullptr;
}

}  // namespace

const Op& context_attention_op() {
  static const Op op{
      .name = "context_attention",
      .inputs = {{"qkv"}},
      .outputs = {{"o"}, {"lse", false}, {"max_logit", false}},
      .reads = always<BackwardReads{.input_in = 0b1, .input_out = 0b11}>,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = {{"cpu", refuse, forward, backward, nullptr}, context_attention_reference()},
      .dry_run = dry_run,
      .axis_rule = group_rule<ContextAttentionAttr>(kHeadwise, AxisType::rows, AxisType::rows, true)};
  return op;
}

AttentionResult context_attention(Tape& tape, const ContextAttentionAttr& attr, const Value& qkv_TW) {
  auto out = tape.apply(context_attention_op(), attr, {qkv_TW});
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

}  // namespace ingot
