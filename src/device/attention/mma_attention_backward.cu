// The backward of attention on tensor cores, without scratch: a block for the queries' gradients of 64 (query
// row, head of the group) pairs, over ascending blocks of keys, and one for the keys' and values' of 64 keys,
// over ascending pairs. Both form the probabilities again; products take these, and the gradients of scores,
// rounded to bf16. Heads wider than 128 channels are the work of several blocks.
#include "device/attention/mma_attention_block.h"

namespace ingot::INGOT_ISA {
namespace {

/// How many pairs keys meet at a time: two sums leave no registers for the scores of 64.
constexpr int kPairs = 32, kPairPanels = kPairs / kPanel;

/// Of 64 pairs.
struct PairScalars {
  float lse[kTile], delta[kTile];  ///< delta: dO . o
};

/// What both kernels read, of a span.
struct Operands {
  Rows<bf16> q, k, v, o, d_o;
  const float* lse;  ///< of the span's first row
  ScoreRule rule;

  INGOT_INLINE Operands(const AttentionBackwardArgs& d, const BlockPlace& at)
      : q(rows_of<bf16>(d.forward.q, d.forward.q_stride, d.forward.width, at)),
        k(rows_of<bf16>(d.forward.k, d.forward.k_stride, d.forward.width, at)),
        v(rows_of<bf16>(d.forward.v, d.forward.v_stride, d.forward.values(), at)),
        o(rows_of<bf16>(d.forward.o, d.forward.o_stride, d.forward.values(), at)),
        d_o(rows_of<bf16>(d.d_o, d.d_o_stride, d.forward.values(), at)),
        lse(d.forward.lse + at.first_row * d.forward.heads),
        rule{d.forward.scale, d.forward.softcap} {}
};

/// Of the first `rows` pairs, which have been named, four threads each; zeros where there is none.
INGOT_INLINE void load_scalars(PairScalars& to, const PairTile& pairs, const Operands& x, int64_t heads,
                               int rows) {
  INGOT_NO_UNROLL
  for (int row = whole_row_of_thread(); row < rows; row += kMmaAttentionThreads / kThreadsOfRow) {
    const int64_t t = pairs.token[row], h = pairs.head[row];
    const float delta = t < 0 ? 0.0f : row_dot(x.d_o.at(t, h), x.o.at(t, h), x.o.width);
    if (!writes_scalars()) continue;
    to.delta[row] = delta;
    to.lse[row] = t < 0 ? 0.0f : x.lse[t * heads + h];
  }
}

/// Where the row of a pair lies, or of a key of the span.
INGOT_INLINE auto pair_row(const Rows<bf16>& rows, const PairTile& pairs) {
  return
      [rows, &pairs](int i) { return pairs.token[i] < 0 ? nullptr : rows.at(pairs.token[i], pairs.head[i]); };
}
INGOT_INLINE auto key_row(const Rows<bf16>& rows, int64_t group, int64_t key0, int64_t keys) {
  return [rows, group, key0, keys](int i) { return i < keys ? rows.at(key0 + i, group) : nullptr; };
}

INGOT_INLINE void put_gradient(bf16* to, float x, bool accumulate) {
  store_one(to, accumulate ? widened(*to) + widened(bf16{bf16_bits(x)}) : x);
}

template <int kParts, bool kCap>
INGOT_KERNEL(kMmaAttentionThreads)
queries_kernel(const AttentionBackwardArgs d, const SpanTable table, int64_t channel_parts, bool accumulate) {
  INGOT_SHARED(ChannelTile<kTilePanels>, channels);
  INGOT_SHARED(RowTile<kTilePanels>, keys_of_d);
  INGOT_SHARED(PairTile, pairs);
  INGOT_SHARED(PairScalars, scalars);
  const AttentionArgs& a = d.forward;
  const BlockPlace at = place_of_block(a, table, channel_parts, kParts * kTile, true);
  if (at.rows == 0) return;
  const Operands x(d, at);
  const int64_t group_heads = a.heads / a.kv_heads, first_pair = at.tile * kTile,
                end_pair = min64(first_pair + kTile, at.rows * group_heads);
  const int64_t first_token = first_pair / group_heads, end_token = (end_pair - 1) / group_heads + 1;
  name_pairs(pairs, first_pair, end_pair, at.group, group_heads);
  sync_threads();
  load_scalars(scalars, pairs, x, a.heads, kTile);
  Panel d_q[kParts * kTilePanels] = {};
  const int64_t first_key = at.window.first(first_token) / kTile * kTile;
  for (int64_t key0 = first_key; key0 < end_token; key0 += kTile) {
    const int64_t keys = min64(kTile, end_token - key0);
    const auto key = key_row(x.k, at.group, key0, keys), value = key_row(x.v, at.group, key0, keys);
    if (key0 > first_key) sync_threads();
    load_tile(keys_of_d, at.first_channel, a.width, key);
    Panel d_s[kTilePanels] = {}, d_p[kTilePanels] = {};
    add_scores(d_s, channels, a.width, keys, pair_row(x.q, pairs), 1, key);
    sync_threads();
    add_scores(d_p, channels, a.values(), keys, pair_row(x.d_o, pairs), 1, value);
    INGOT_UNROLL
    for (int r = 0; r < kPanelRows; ++r) {
      const int row = first_row_of_panel() + row_of_panel(r);
      const int64_t t = pairs.token[row], low = t < 0 ? 0 : at.window.first(t) - key0,
                    high = t < 0 ? -1 : t - key0;
      INGOT_UNROLL
      for (int j = 0; j < kTilePanels; ++j) {
        const Probability is = probability_of<kCap>(x.rule, d_s[j].row(r), set1(scalars.lse[row]));
        const Vec p = four_floats([&](int i) {
          const int64_t at_key = j * kPanel + column_of_panel(i);
          return low <= at_key && at_key <= high ? is.p.v[i] : 0.0f;
        });
        d_s[j].set_row(r, p * (d_p[j].row(r) - set1(scalars.delta[row])) * is.slope);
      }
    }
    add_rows(d_q, d_s, keys_of_d, keys, at.first_channel, a.width);
  }
  INGOT_UNROLL
  for (int r = 0; r < kPanelRows; ++r) {
    const int i = first_row_of_panel() + row_of_panel(r);
    if (pairs.token[i] < 0) continue;
    bf16* const to =
        static_cast<bf16*>(d.d_q) + (at.first_row + pairs.token[i]) * d.d_q_stride + pairs.head[i] * a.width;
    each_result(d_q, r, at.first_channel, a.width,
                [&](int64_t channel, float g) { put_gradient(to + channel, g, accumulate); });
  }
}

template <int kParts, bool kCap>
INGOT_KERNEL(kMmaAttentionThreads)
keys_kernel(const AttentionBackwardArgs d, const SpanTable table, int64_t channel_parts, bool accumulate) {
  INGOT_SHARED(ChannelTile<kPairPanels>, channels);
  INGOT_SHARED(RowTile<kPairPanels>, rows_of_q);
  INGOT_SHARED(RowTile<kPairPanels>, rows_of_d_o);
  INGOT_SHARED(PairTile, pairs);
  INGOT_SHARED(PairScalars, scalars);
  const AttentionArgs& a = d.forward;
  const BlockPlace at = place_of_block(a, table, channel_parts, kParts * kTile, false);
  if (at.rows == 0) return;
  const Operands x(d, at);
  const int64_t group_heads = a.heads / a.kv_heads, key0 = at.tile * kTile,
                keys = min64(kTile, at.rows - key0),
                end_token = a.window > 0 ? min64(at.rows, at.window.end(key0 + keys - 1)) : at.rows;
  const auto key = key_row(x.k, at.group, key0, keys), value = key_row(x.v, at.group, key0, keys);
  const auto q = pair_row(x.q, pairs), d_o = pair_row(x.d_o, pairs);
  Panel d_k[kParts * kTilePanels] = {}, d_v[kParts * kTilePanels] = {};
  for (int64_t pair = key0 * group_heads; pair < end_token * group_heads; pair += kPairs) {
    const int64_t count = min64(kPairs, end_token * group_heads - pair);
    sync_threads();
    name_pairs(pairs, pair, pair + count, at.group, group_heads);
    sync_threads();
    load_scalars(scalars, pairs, x, a.heads, kPairs);
    load_tile(rows_of_q, at.first_channel, a.width, q);
    load_tile(rows_of_d_o, at.first_channel, a.values(), d_o);
    Panel p[kPairPanels] = {}, d_s[kPairPanels] = {}, d_p[kPairPanels] = {};
    add_scores(d_s, channels, a.width, count, key, 1, q);
    sync_threads();
    add_scores(d_p, channels, a.values(), count, value, 1, d_o);
    INGOT_UNROLL
    for (int j = 0; j < kPairPanels; ++j) {
      const auto of_columns = [&](const float* scalar) {
        return four_floats([&](int i) { return scalar[j * kPanel + column_of_panel(i)]; });
      };
      const Vec lse = of_columns(scalars.lse), delta = of_columns(scalars.delta);
      INGOT_UNROLL
      for (int r = 0; r < kPanelRows; ++r) {
        const int64_t own = key0 + first_row_of_panel() + row_of_panel(r);
        const Probability is = probability_of<kCap>(x.rule, d_s[j].row(r), lse);
        const Vec seen = four_floats([&](int i) {
          const int64_t t = pairs.token[j * kPanel + column_of_panel(i)];
          return own <= t && at.window.first(t) <= own ? is.p.v[i] : 0.0f;
        });
        p[j].set_row(r, seen);
        d_s[j].set_row(r, seen * (d_p[j].row(r) - delta) * is.slope);
      }
    }
    add_rows(d_v, p, rows_of_d_o, count, at.first_channel, a.values());
    add_rows(d_k, d_s, rows_of_q, count, at.first_channel, a.width);
  }
  INGOT_UNROLL
  for (int r = 0; r < kPanelRows; ++r) {
    const int64_t i = first_row_of_panel() + row_of_panel(r), token = at.first_row + key0 + i;
    if (i >= keys) continue;
    bf16* const to_k = static_cast<bf16*>(d.d_k) + token * d.d_k_stride + at.group * a.width;
    bf16* const to_v = static_cast<bf16*>(d.d_v) + token * d.d_v_stride + at.group * a.values();
    each_result(d_k, r, at.first_channel, a.width,
                [&](int64_t channel, float g) { put_gradient(to_k + channel, g, accumulate); });
    each_result(d_v, r, at.first_channel, a.values(),
                [&](int64_t channel, float g) { put_gradient(to_v + channel, g, accumulate); });
  }
}

}  // namespace

void launch_mma_attention_backward(GpuStream stream, const AttentionBackwardArgs& args, bool accumulate) {
  const AttentionArgs& a = args.forward;
  with_mma_parts(a.width, a.softcap, [&]<int kParts, bool kCap>(int64_t channel_parts) {
    each_table(a, a.heads / a.kv_heads, [&](const SpanTable& table) {
      launch("mma_attention_queries", queries_kernel<kParts, kCap>,
             {table.tiles * a.kv_heads * channel_parts, kMmaAttentionThreads}, stream, args, table,
             channel_parts, accumulate);
    });
  });
  const int64_t widest = a.width > a.values() ? a.width : a.values();
  with_mma_parts(widest, a.softcap, [&]<int kParts, bool kCap>(int64_t channel_parts) {
    each_table(a, 1, [&](const SpanTable& table) {
      launch("mma_attention_keys", keys_kernel<kParts, kCap>,
             {table.tiles * a.kv_heads * channel_parts, kMmaAttentionThreads}, stream, args, table,
             channel_parts, accumulate);
    });
  });
}

}  // namespace ingot::INGOT_ISA
