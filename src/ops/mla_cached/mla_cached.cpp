// See mla_cached.h: the op's description, and its CPU kernel: matrix products around the attention of
// device/attention/attention.h.
#include "ops/mla_cached/mla_cached.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "device/attention/attention.h"
#include "device/gemm/gemm.h"
#include "ops/common.h"
#include "ops/sequence/sequence_store.h"
#include "ops/weight_operand.h"

namespace ingot {
namespace {

using namespace mla_cached_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<MlaCachedAttr>();
  const Tensor& q = call.in[kQ];
  const int64_t rows = q.dim(0);
  require(q, {rows, a.heads * (a.nope + a.rope)}, q.dtype(), "q");
  require(call.in[kC], {rows, a.rank}, q.dtype(), "c");
  require(call.in[kKRope], {rows, a.rope}, q.dtype(), "k_rope");
  require(call.in[kKvUp], {a.heads * (a.nope + a.value), a.rank}, call.in[kKvUp].dtype(), "kv_up");
  SequenceSpan whole;
  for (const SequenceSpan& s : spans_of(a.rows, rows, whole))
    INGOT_CHECK(s.state != nullptr, "rows {} .. {} have no cached sequence", s.row_begin,
                s.row_begin + s.rows);
  out[0] = {Shape{rows, a.heads * a.value}, q.dtype()};
  out[1] = {Shape{a.heads}, statistic_of(q)};
}

OpCost cost(const OpCall& call) {
  const auto& a = call.attr<MlaCachedAttr>();
  double pairs = 0, tokens = 0;
  SequenceSpan whole;
  for (const SequenceSpan& s : spans_of(a.rows, call.in[kQ].dim(0), whole)) {
    tokens += static_cast<double>(a.absorb ? s.rows : s.past + s.rows);
    for (int64_t t = s.past; t < s.past + s.rows; ++t) pairs += static_cast<double>(t - a.first_key(t) + 1);
  }
  const int64_t per_pair = a.absorb ? 2 * a.rank + a.rope : a.nope + a.rope + a.value;
  const double heads = 2 * static_cast<double>(a.heads);
  return {heads * (tokens * static_cast<double>(a.rank * (a.nope + a.value)) +
                   pairs * static_cast<double>(per_pair)),
          0, 0, tensor_bytes(call)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const MlaCachedAttr*>(attr_data);
  return fmt::format("heads={}x({}+{})/{} rank={} scale={} window={} softcap={} {} layer={}", a.heads, a.nope,
                     a.rope, a.value, a.rank, a.scale, a.window, a.softcap,
                     a.absorb ? "absorbed" : "materialised", a.layer);
}

static_assert(kAttentionBlock == SequenceState::kPageTokens);

using Bytes = std::vector<std::byte>;

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  const auto& a = call.attr<MlaCachedAttr>();
  const int64_t widest = a.absorb ? a.rank + a.rope : std::max(a.nope + a.rope, a.value);
  return widest > kAttentionMaxWidth ? "heads wider than 1024" : nullptr;
}

/// What all parts of a call share.
struct Problem {
  explicit Problem(const OpCall& c)
      : call(c), a(c.attr<MlaCachedAttr>()), type(c.in[kQ].dtype()), size(size_of(type)) {}
  /// Makes the rows of the up-projection, [.., C], from channel `channel` of head h on, operand B.
  void set_up(GemmArgs& g, int64_t h, int64_t channel) const {
    set_weight(g, call.in[kKvUp], (h * (a.nope + a.value) + channel) * a.rank);
    g.ldb = a.rank;
  }
  AttentionArgs attention() const {
    AttentionArgs args;
    args.scale = static_cast<float>(a.scale);
    args.window = a.window, args.softcap = static_cast<float>(a.softcap);
    args.type = type;
    args.span_count = 1;
    return args;
  }

  const OpCall& call;
  const MlaCachedAttr& a;
  DType type;
  int64_t size;
};

void append(const Problem& p, const SequenceSpan& span) {
  const auto& a = p.a;
  const int64_t width = a.rank + a.rope;
  Bytes rows(static_cast<size_t>(span.rows * width * p.size));
  for (int64_t t = 0; t < span.rows; ++t) {
    std::byte* row = rows.data() + t * width * p.size;
    std::memcpy(row, element(p.call.in[kC], (span.row_begin + t) * a.rank),
                static_cast<size_t>(a.rank * p.size));
    std::memcpy(row + a.rank * p.size, element(p.call.in[kKRope], (span.row_begin + t) * a.rope),
                static_cast<size_t>(a.rope * p.size));
  }
  span.state->append_kv(a.layer, span.past, Tensor(rows.data(), {span.rows, width}, p.type));
}

/// Keys and values of heads head0 .. head0 + heads for the tokens of one page, made as training makes them.
void expand_page(const Problem& p, const SequenceSpan& span, int64_t page, int64_t head0, int64_t heads,
                 std::byte* keys, std::byte* values) {
  const auto& a = p.a;
  const int64_t K = a.nope + a.rope, up = a.nope + a.value, width = a.rank + a.rope,
                page_tokens = SequenceState::kPageTokens;
  const int64_t tokens = std::min(page_tokens, span.past + span.rows - page * page_tokens);
  const auto* cache = static_cast<const std::byte*>(span.state->keys(a.layer, page));
  Bytes kv(static_cast<size_t>(tokens * heads * up * p.size));
  GemmArgs g;
  g.m = tokens, g.n = heads * up, g.k = a.rank;
  g.a = cache, g.a_type = p.type, g.lda = width;
  p.set_up(g, head0, 0);
  g.b_transposed = true;
  g.c = kv.data(), g.c_type = p.type, g.ldc = g.n;
  gemm(g);
  const auto copy = [&](std::byte* to, const std::byte* from, int64_t count) {
    std::memcpy(to, from, static_cast<size_t>(count * p.size));
  };
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const std::byte* from = kv.data() + (t * heads + h) * up * p.size;
      std::byte* key = keys + (t * heads + h) * K * p.size;
      copy(key, from, a.nope);
      copy(key + a.nope * p.size, cache + (t * width + a.rank) * p.size, a.rope);
      copy(values + (t * heads + h) * a.value * p.size, from + a.nope * p.size, a.value);
    }
}

void materialised(const Problem& p, const SequenceSpan& span, float* max_logit) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  const auto& a = p.a;
  const int64_t K = a.nope + a.rope, page_tokens = SequenceState::kPageTokens;
  const int64_t pages = SequenceStore::pages_for(span.past + span.rows);
  const int64_t share =
      std::clamp<int64_t>(kMostBytes / (pages * page_tokens * (K + a.value) * p.size), 1, a.heads);
  Bytes keys(static_cast<size_t>(pages * page_tokens * share * K * p.size));
  Bytes values(static_cast<size_t>(pages * page_tokens * share * a.value * p.size));
  for (int64_t head0 = 0; head0 < a.heads; head0 += share) {
    const int64_t heads = std::min(share, a.heads - head0);
    std::vector<const void*> blocks(static_cast<size_t>(2 * pages));
    for (int64_t page = 0; page < pages; ++page) {
      blocks[static_cast<size_t>(page)] = keys.data() + page * page_tokens * heads * K * p.size;
      blocks[static_cast<size_t>(pages + page)] =
          values.data() + page * page_tokens * heads * a.value * p.size;
    }
    parallel_for(pages, 1, [&](int64_t begin, int64_t end) {
      for (int64_t page = begin; page < end; ++page)
        expand_page(p, span, page, head0, heads, keys.data() + page * page_tokens * heads * K * p.size,
                    values.data() + page * page_tokens * heads * a.value * p.size);
    });
    const AttentionSpan rows{span.row_begin, span.rows, span.past, blocks.data(), blocks.data() + pages};
    AttentionArgs args = p.attention();
    args.heads = args.kv_heads = heads, args.width = K, args.value_width = a.value;
    args.spans = &rows;
    args.q = element(p.call.in[kQ], head0 * K), args.q_stride = a.heads * K;
    args.k_stride = heads * K, args.v_stride = heads * a.value;
    args.o = element(p.call.out[0], head0 * a.value), args.o_type = p.type, args.o_stride = a.heads * a.value;
    args.max_logit = max_logit + head0;
    attention_forward(args);
  }
}

/// [U_h^T q_nope ; q_rope] of rows row0 .. row0 + rows, all heads.
void absorb_queries(const Problem& p, int64_t row0, int64_t rows, std::byte* queries) {
  const auto& a = p.a;
  const int64_t K = a.nope + a.rope, width = a.rank + a.rope;
  parallel_for(a.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      GemmArgs g;
      g.m = rows, g.n = a.rank, g.k = a.nope;
      g.a = element(p.call.in[kQ], (row0 * a.heads + h) * K), g.a_type = p.type, g.lda = a.heads * K;
      p.set_up(g, h, 0);
      g.c = queries + h * width * p.size, g.c_type = p.type, g.ldc = a.heads * width;
      gemm(g);
      for (int64_t t = 0; t < rows; ++t)
        std::memcpy(queries + ((t * a.heads + h) * width + a.rank) * p.size,
                    element(p.call.in[kQ], ((row0 + t) * a.heads + h) * K + a.nope),
                    static_cast<size_t>(a.rope * p.size));
    }
  });
}

/// o = V_h (mean latent) of rows row0 .. row0 + rows, all heads.
void project_values(const Problem& p, int64_t row0, int64_t rows, const float* means) {
  const auto& a = p.a;
  parallel_for(a.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      GemmArgs g;
      g.m = rows, g.n = a.value, g.k = a.rank;
      g.a = means + h * a.rank, g.lda = a.heads * a.rank;
      p.set_up(g, h, a.nope);
      g.b_transposed = true;
      g.c = element(p.call.out[0], (row0 * a.heads + h) * a.value), g.c_type = p.type,
      g.ldc = a.heads * a.value;
      gemm(g);
    }
  });
}

void absorbed(const Problem& p, const SequenceSpan& span, float* max_logit) {
  constexpr int64_t kRows = 64;  // at a time: their queries are as wide as the latent, per head
  const auto& a = p.a;
  const int64_t width = a.rank + a.rope, most = std::min(kRows, span.rows);
  std::vector<const void*> blocks;
  for (int64_t page = 0; page < SequenceStore::pages_for(span.past + span.rows); ++page)
    blocks.push_back(span.state->keys(a.layer, page));
  Bytes queries(static_cast<size_t>(most * a.heads * width * p.size));
  std::vector<float> means(static_cast<size_t>(most * a.heads * a.rank)), top(static_cast<size_t>(a.heads));
  for (int64_t first = 0; first < span.rows; first += kRows) {
    const int64_t rows = std::min(kRows, span.rows - first), row0 = span.row_begin + first;
    absorb_queries(p, row0, rows, queries.data());
    const AttentionSpan part{0, rows, span.past + first, blocks.data(), blocks.data()};
    AttentionArgs args = p.attention();
    args.heads = a.heads, args.kv_heads = 1, args.width = width, args.value_width = a.rank;
    args.spans = &part;
    args.q = queries.data(), args.q_stride = a.heads * width;
    args.k_stride = args.v_stride = width;
    args.o = means.data(), args.o_type = DType::f32, args.o_stride = a.heads * a.rank;
    args.max_logit = top.data();
    attention_forward(args);
    for (size_t h = 0; h < top.size(); ++h) max_logit[h] = std::max(max_logit[h], top[h]);
    project_values(p, row0, rows, means.data());
  }
}

void forward(const OpCall& call) {
  const Problem p(call);
  auto* max_logit = call.out[1].as<float>();
  const int64_t rows = call.in[kQ].dim(0);
  std::fill_n(max_logit, p.a.heads, rows > 0 ? -std::numeric_limits<float>::infinity() : 0.0f);
  std::vector<float> top(static_cast<size_t>(p.a.heads));
  SequenceSpan whole;
  for (const SequenceSpan& span : spans_of(p.a.rows, rows, whole)) {
    if (span.rows == 0) continue;
    append(p, span);
    if (p.a.absorb) {
      absorbed(p, span, max_logit);
      continue;
    }
    materialised(p, span, top.data());
    for (size_t h = 0; h < top.size(); ++h) max_logit[h] = std::max(max_logit[h], top[h]);
  }
}

}  // namespace

const Op& mla_cached_op() {
  static const Op op{.name = "mla_cached",
                     .inputs = {{"q", InputKind::data},
                                {"c", InputKind::data},
                                {"k_rope", InputKind::data},
                                {"kv_up", InputKind::data}},
                     .outputs = {{"o", false}, {"max_logit", false}},
                     .reads = reads_nothing,
                     .infer = infer,
                     .cost = cost,
                     .print = print,
                     .kernels = {{"cpu", refuse, forward, nullptr, nullptr, {.rounded = slot_bit(kKvUp)}},
                                 mla_cached_reference()},
                     .axis_rule = {.passes = kHeadwise,
                                   .along_sequence = true,
                                   .sharded = {{3, 0, {AxisType::shards, AxisType::shards}}}}};
  return op;
}

MlaCachedResult mla_cached(Tape& tape, const MlaCachedAttr& attr, const Value& q, const Value& c,
                           const Value& k_rope, const Value& kv_up) {
  auto out = tape.apply(mla_cached_op(), attr, {q, c, k_rope, kv_up});
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace ingot
