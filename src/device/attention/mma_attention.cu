// The forward of attention on tensor cores: a block for 64 (query row, head of the group) pairs of a
// document, which takes the blocks of 64 keys in ascending order, by online softmax in registers. Values
// wider than 128 channels are the work of several blocks, each of which forms the scores.
#include "device/attention/mma_attention_block.h"

namespace ingot::INGOT_ISA {
namespace {

/// Where the keys and values of a sequence lie that is not among the call's rows: see AttentionSpan.
struct KeyPages {
  const void* const* keys;  ///< nullptr: they are the rows of the call
  const void* const* values;
  int64_t past;
};

/// What the threads of a row know of it; `sum` is of the thread's own columns.
struct RowState {
  float largest, sum;
};

/// Online softmax of the thread's row r: makes probabilities of its scores; returns what its values must be
/// multiplied by.
template <bool kCap>
INGOT_INLINE float soften_row(const ScoreRule& rule, Panel (&s)[kTilePanels], int r, int64_t keys,
                              const Visible& visible, RowState& state) {
  const float lowest = -__builtin_inff();
  Vec x[kTilePanels];
  Vec top = set1(lowest);
  INGOT_UNROLL
  for (int j = 0; j < kTilePanels; ++j) {
    x[j] = set1(lowest);
    if (j * kPanel >= keys) continue;
    const Vec score = scaled<kCap>(rule, s[j].row(r));
    x[j] = four_floats([&](int i) {
      const int64_t key = j * kPanel + column_of_panel(i);
      return visible.low <= key && key <= visible.high ? score.v[i] : lowest;
    });
    top = max(top, x[j]);
  }
  const auto larger = [](float a, float b) { return a > b ? a : b; };
  const float own = larger(larger(top.v[0], top.v[1]), larger(top.v[2], top.v[3]));
  const float now = larger(state.largest, over_row_of_panel(own, larger)), base = now == lowest ? 0.0f : now;
  const float decay = any_lane(exp_below(set1(state.largest) - set1(base)));
  state.largest = now;
  state.sum = state.sum * decay;
  INGOT_UNROLL
  for (int j = 0; j < kTilePanels; ++j) {
    const Vec p = exp_below(x[j] - set1(base));
    s[j].set_row(r, p);
    state.sum = state.sum + ((p.v[0] + p.v[1]) + (p.v[2] + p.v[3]));
  }
  return decay;
}

/// A fourth block beside three would leave registers without place where scores are capped.
template <int kParts, bool kCap>
INGOT_KERNEL_BESIDE(kMmaAttentionThreads, kParts == 1 ? (kCap ? 3 : 4) : 1)
forward_kernel(const AttentionArgs a, const SpanTable table, const KeyPages pages, int64_t channel_parts) {
  INGOT_SHARED(ChannelTile<kTilePanels>, channels);
  INGOT_SHARED(RowTile<kTilePanels>, values);
  INGOT_SHARED(PairTile, pairs);
  const BlockPlace at = place_of_block(a, table, channel_parts, kParts * kTile, true);
  if (at.rows == 0) return;
  const int64_t group_heads = a.heads / a.kv_heads, first_pair = at.tile * kTile,
                end_pair = min64(first_pair + kTile, at.rows * group_heads);
  const auto q = rows_of<bf16>(a.q, a.q_stride, a.width, at), k = rows_of<bf16>(a.k, a.k_stride, a.width, at),
             v = rows_of<bf16>(a.v, a.v_stride, a.values(), at);
  const ScoreRule rule{a.scale, a.softcap};
  const int64_t first_token = pages.past + first_pair / group_heads,
                end_token = pages.past + (end_pair - 1) / group_heads + 1;
  const bool is_paged = pages.keys != nullptr;
  name_pairs(pairs, first_pair, end_pair, at.group, group_heads);
  sync_threads();
  const auto query = [&](int i) {
    return pairs.token[i] < 0 ? nullptr : q.at(pairs.token[i], pairs.head[i]);
  };
  RowState state[kPanelRows];
  INGOT_UNROLL
  for (int r = 0; r < kPanelRows; ++r) state[r] = {-__builtin_inff(), 0.0f};
  Panel o[kParts * kTilePanels] = {};
  const int64_t first_key = at.window.first(first_token) / kTile * kTile;
  for (int64_t key0 = first_key; key0 < end_token; key0 += kTile) {
    const int64_t keys = min64(kTile, end_token - key0);
    const auto key = [&](int i) -> const bf16* {
      if (i >= keys) return nullptr;
      return is_paged ? static_cast<const bf16*>(pages.keys[key0 / kTile]) + at.group * a.k_head + i
                      : k.at(key0 + i, at.group);
    };
    const auto value = [&](int i) -> const bf16* {
      if (i >= keys) return nullptr;
      return is_paged
                 ? static_cast<const bf16*>(pages.values[key0 / kTile]) + at.group * a.v_head + i * a.v_stride
                 : v.at(key0 + i, at.group);
    };
    if (key0 > first_key) sync_threads();
    load_tile(values, at.first_channel, a.values(), value);
    Panel p[kTilePanels] = {};
    add_scores(p, channels, a.width, keys, query, is_paged ? kTile : 1, key);
    INGOT_UNROLL
    for (int r = 0; r < kPanelRows; ++r) {
      const int64_t token = pairs.token[first_row_of_panel() + row_of_panel(r)];
      const Visible visible =
          token < 0 ? Visible{0, -1}
                    : Visible{at.window.first(pages.past + token) - key0, pages.past + token - key0};
      const float decay = soften_row<kCap>(rule, p, r, keys, visible, state[r]);
      INGOT_UNROLL
      for (Panel& sum : o) sum.set_row(r, sum.row(r) * set1(decay));
    }
    add_rows(o, p, values, keys, at.first_channel, a.values());
  }
  INGOT_UNROLL
  for (int r = 0; r < kPanelRows; ++r) {
    const float sum = over_row_of_panel(state[r].sum, [](float x, float y) { return x + y; });
    const int i = first_row_of_panel() + row_of_panel(r);
    if (pairs.token[i] < 0) continue;
    const int64_t token = at.first_row + pairs.token[i], head = pairs.head[i];
    if (writes_row_of_panel() && at.first_channel == 0) {
      if (a.lse != nullptr) a.lse[token * a.heads + head] = state[r].largest + any_lane(vlog(set1(sum)));
      if (a.max_logit != nullptr) raise_to(a.max_logit + head, state[r].largest);
    }
    bf16* const to = static_cast<bf16*>(a.o) + token * a.o_stride + head * a.values();
    each_result(o, r, at.first_channel, a.values(),
                [&](int64_t channel, float x) { store_one(to + channel, x * (1.0f / sum)); });
  }
}

}  // namespace

void launch_mma_attention_forward(GpuStream stream, const AttentionArgs& args) {
  with_mma_parts(args.values(), args.softcap, [&]<int kParts, bool kCap>(int64_t channel_parts) {
    const auto launch_tables = [&](const AttentionArgs& of, const KeyPages& pages) {
      each_table(of, of.heads / of.kv_heads, [&](const SpanTable& table) {
        launch("mma_attention_forward", forward_kernel<kParts, kCap>,
               {table.tiles * of.kv_heads * channel_parts, kMmaAttentionThreads}, stream, of, table, pages,
               channel_parts);
      });
    };
    if (args.span_count == 0 || args.spans[0].k_blocks == nullptr) return launch_tables(args, {});
    for (int64_t s = 0; s < args.span_count; ++s) {
      AttentionArgs one = args;
      one.spans = args.spans + s, one.span_count = 1;
      launch_tables(one, {one.spans->k_blocks, one.spans->v_blocks, one.spans->past});
    }
  });
}

}  // namespace ingot::INGOT_ISA
