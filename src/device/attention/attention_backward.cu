// The backward of attention on a GPU, without scratch: a block for the queries' gradients of 64 (query row,
// head of the group) pairs, over ascending blocks of keys, and one for the keys' and values' of 64 keys, over
// ascending pairs. Both form the probabilities again. Heads wider than 128 channels are the work of several
// blocks.
#include "device/attention/attention_block.h"

namespace ingot::INGOT_ISA {
namespace {

/// Of 64 pairs.
struct PairScalars {
  float lse[kTile], delta[kTile];  ///< delta: dO . o
};

/// What both kernels read, of a span.
template <class T>
struct Operands {
  Rows<T> q, k, v, o, d_o;
  const float* lse;  ///< of the span's first row
  ScoreRule rule;

  INGOT_INLINE Operands(const AttentionBackwardArgs& d, const BlockPlace& at)
      : q(rows_of<T>(d.forward.q, d.forward.q_stride, d.forward.width, at)),
        k(rows_of<T>(d.forward.k, d.forward.k_stride, d.forward.width, at)),
        v(rows_of<T>(d.forward.v, d.forward.v_stride, d.forward.values(), at)),
        o(rows_of<T>(d.forward.o, d.forward.o_stride, d.forward.values(), at)),
        d_o(rows_of<T>(d.d_o, d.d_o_stride, d.forward.values(), at)),
        lse(d.forward.lse + at.first_row * d.forward.heads),
        rule{d.forward.scale, d.forward.softcap} {}
};

/// Four threads a pair; zeros where there is none. The pairs have been named.
template <class T>
INGOT_INLINE void load_scalars(PairScalars& to, const PairTile& pairs, const Operands<T>& x, int64_t heads) {
  const int row = whole_row_of_thread();
  const int64_t t = pairs.token[row], h = pairs.head[row];
  const float delta = t < 0 ? 0.0f : row_dot(x.d_o.at(t, h), x.o.at(t, h), x.o.width);
  if (!writes_scalars()) return;
  to.delta[row] = delta;
  to.lse[row] = t < 0 ? 0.0f : x.lse[t * heads + h];
}

/// From scores and dO . v of the thread's four pairs to probabilities (unless p is nullptr) and the gradients
/// of scores. No pair: zeros.
template <bool kCap>
INGOT_INLINE void store_gradients(ScoreTile* p, ScoreTile& d_s, const ScoreRule& rule, const Outputs& score,
                                  const Outputs& d_p, const PairTile& pairs, const PairScalars& scalars,
                                  const AttentionWindow& window, int64_t key0) {
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) {
    const int row = first_row_of_thread() + r;
    const int64_t t = pairs.token[row];
    const Visible visible = t < 0 ? Visible{0, -1} : Visible{window.first(t) - key0, t - key0};
    const ProbabilityGradients g = gradients_of<kCap, false>(
        rule, score.row[r], d_p.row[r], vector_of_thread(), visible, scalars.lse[row], scalars.delta[row]);
    if (p != nullptr) put_columns(p->x[row], g.p);
    put_columns(d_s.x[row], g.d_s);
  }
}

/// The same of a whole tile, from the rows that it takes; meets the block.
template <class T>
INGOT_INLINE void form_gradients(ScoreTile* p, ScoreTile& d_s, DepthTiles& tiles, const Operands<T>& x,
                                 const PairTile& pairs, const PairScalars& scalars, const BlockPlace& at,
                                 int64_t key0, int count, int64_t keys) {
  const bool has_outputs = first_row_of_thread() < count && vector_of_thread() < keys;
  const auto pair_of = [&](Rows<T> rows) {
    return [&, rows](int i) { return i < count ? rows.at(pairs.token[i], pairs.head[i]) : nullptr; };
  };
  const auto key_of = [&](Rows<T> rows) {
    return [&, rows](int i) { return i < keys ? rows.at(key0 + i, at.group) : nullptr; };
  };
  const Outputs score = products<T>(tiles, x.q.width, has_outputs, pair_of(x.q), key_of(x.k));
  const Outputs d_p = products<T>(tiles, x.v.width, has_outputs, pair_of(x.d_o), key_of(x.v));
  if (x.rule.softcap > 0)
    store_gradients<true>(p, d_s, x.rule, score, d_p, pairs, scalars, at.window, key0);
  else
    store_gradients<false>(p, d_s, x.rule, score, d_p, pairs, scalars, at.window, key0);
  sync_threads();
}

template <class T, int kParts>
INGOT_KERNEL(kAttentionThreads)
queries_kernel(const AttentionBackwardArgs d, const SpanTable table, int64_t channel_parts, bool accumulate) {
  INGOT_SHARED(ScoreTile, d_s);
  INGOT_SHARED(DepthTiles, tiles);
  INGOT_SHARED(PairTile, pairs);
  INGOT_SHARED(PairScalars, scalars);
  const AttentionArgs& a = d.forward;
  const BlockPlace at = place_of_block(a, table, channel_parts, kParts * kTile, true);
  if (at.rows == 0) return;
  const Operands<T> x(d, at);
  const int64_t group_heads = a.heads / a.kv_heads, first_pair = at.tile * kTile,
                end_pair = min64(first_pair + kTile, at.rows * group_heads);
  const int count = static_cast<int>(end_pair - first_pair);
  const int64_t first_token = first_pair / group_heads, end_token = (end_pair - 1) / group_heads + 1;
  name_pairs(pairs, first_pair, end_pair, at.group, group_heads);
  sync_threads();
  load_scalars(scalars, pairs, x, a.heads);
  Outputs d_q[kParts];
  INGOT_UNROLL
  for (int part = 0; part < kParts; ++part) d_q[part] = no_outputs();
  for (int64_t key0 = at.window.first(first_token) / kTile * kTile; key0 < end_token; key0 += kTile) {
    const int64_t keys = min64(kTile, end_token - key0);
    form_gradients<T>(nullptr, d_s, tiles, x, pairs, scalars, at, key0, count, keys);
    for (int64_t key = 0; key < keys; key += kDepth) {
      INGOT_UNROLL
      for (int part = 0; part < kParts; ++part)
        load_rows<T>(tiles.of[part], at.first_channel + part * kTile, a.width,
                     [&](int i) { return key + i < keys ? x.k.at(key0 + key + i, at.group) : nullptr; });
      sync_threads();
      INGOT_UNROLL
      for (int part = 0; part < kParts; ++part)
        if (first_row_of_thread() < count) add_keys(d_q[part], d_s, static_cast<int>(key), tiles.of[part]);
      sync_threads();
    }
  }
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) {
    const int i = first_row_of_thread() + r;
    if (i >= count) continue;
    T* to = static_cast<T*>(d.d_q) + (at.first_row + pairs.token[i]) * d.d_q_stride + pairs.head[i] * a.width;
    INGOT_UNROLL
    for (int part = 0; part < kParts; ++part)
      put_channels(to, d_q[part].row[r], at.first_channel + part * kTile, a.width, accumulate);
  }
}

/// Adds for a tile of pairs scores.x[pair][key] times channels of the pairs' rows.
template <class T, int kParts>
INGOT_INLINE void add_rows_of_pairs(Outputs (&sums)[kParts], const ScoreTile& scores, DepthTiles& tiles,
                                    const Rows<T>& rows, const PairTile& pairs, int64_t first_channel,
                                    int count, int64_t keys) {
  for (int first = 0; first < count; first += kDepth) {
    INGOT_UNROLL
    for (int part = 0; part < kParts; ++part)
      load_rows<T>(tiles.of[part], first_channel + part * kTile, rows.width, [&](int i) {
        return first + i < count ? rows.at(pairs.token[first + i], pairs.head[first + i]) : nullptr;
      });
    sync_threads();
    INGOT_UNROLL
    for (int part = 0; part < kParts; ++part)
      if (first_row_of_thread() < keys) add_pairs(sums[part], scores, first, tiles.of[part]);
    sync_threads();
  }
}

template <class T, int kParts>
INGOT_KERNEL(kAttentionThreads)
keys_kernel(const AttentionBackwardArgs d, const SpanTable table, int64_t channel_parts, bool accumulate) {
  INGOT_SHARED(ScoreTile, p);
  INGOT_SHARED(ScoreTile, d_s);
  INGOT_SHARED(DepthTiles, tiles);
  INGOT_SHARED(PairTile, pairs);
  INGOT_SHARED(PairScalars, scalars);
  const AttentionArgs& a = d.forward;
  const BlockPlace at = place_of_block(a, table, channel_parts, kParts * kTile, false);
  if (at.rows == 0) return;
  const Operands<T> x(d, at);
  const int64_t group_heads = a.heads / a.kv_heads, key0 = at.tile * kTile,
                keys = min64(kTile, at.rows - key0),
                end_token = a.window > 0 ? min64(at.rows, at.window.end(key0 + keys - 1)) : at.rows;
  Outputs d_k[kParts], d_v[kParts];
  INGOT_UNROLL
  for (int part = 0; part < kParts; ++part) d_k[part] = no_outputs(), d_v[part] = no_outputs();
  for (int64_t pair = key0 * group_heads; pair < end_token * group_heads; pair += kTile) {
    const int count = static_cast<int>(min64(kTile, end_token * group_heads - pair));
    name_pairs(pairs, pair, pair + count, at.group, group_heads);
    sync_threads();
    load_scalars(scalars, pairs, x, a.heads);
    form_gradients<T>(&p, d_s, tiles, x, pairs, scalars, at, key0, count, keys);
    add_rows_of_pairs<T, kParts>(d_v, p, tiles, x.d_o, pairs, at.first_channel, count, keys);
    add_rows_of_pairs<T, kParts>(d_k, d_s, tiles, x.q, pairs, at.first_channel, count, keys);
  }
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) {
    const int64_t i = first_row_of_thread() + r, token = at.first_row + key0 + i;
    if (i >= keys) continue;
    T* to_k = static_cast<T*>(d.d_k) + token * d.d_k_stride + at.group * a.width;
    T* to_v = static_cast<T*>(d.d_v) + token * d.d_v_stride + at.group * a.values();
    INGOT_UNROLL
    for (int part = 0; part < kParts; ++part) {
      put_channels(to_k, d_k[part].row[r], at.first_channel + part * kTile, a.width, accumulate);
      put_channels(to_v, d_v[part].row[r], at.first_channel + part * kTile, a.values(), accumulate);
    }
  }
}

}  // namespace

void launch_attention_backward(GpuStream stream, const AttentionBackwardArgs& args, bool accumulate) {
  const AttentionArgs& a = args.forward;
  with_parts(a.type, a.width, [&]<class T, int kParts>(int64_t channel_parts) {
    each_table(a, a.heads / a.kv_heads, [&](const SpanTable& table) {
      launch("attention_queries", queries_kernel<T, kParts>,
             {table.tiles * a.kv_heads * channel_parts, kAttentionThreads}, stream, args, table,
             channel_parts, accumulate);
    });
  });
  const int64_t widest = a.width > a.values() ? a.width : a.values();
  with_parts(a.type, widest, [&]<class T, int kParts>(int64_t channel_parts) {
    each_table(a, 1, [&](const SpanTable& table) {
      launch("attention_keys", keys_kernel<T, kParts>,
             {table.tiles * a.kv_heads * channel_parts, kAttentionThreads}, stream, args, table,
             channel_parts, accumulate);
    });
  });
}

}  // namespace ingot::INGOT_ISA
