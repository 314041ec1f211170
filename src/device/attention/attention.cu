// The forward of attention on a GPU: a block for 64 (query row, head of the group) pairs of a document, which
// takes the blocks of 64 keys in ascending order. Values wider than 128 channels are the work of several
// blocks, each of which forms the scores.
#include "device/attention/attention_block.h"

namespace ingot::INGOT_ISA {
namespace {

struct RowScalars {
  float x[kTile];
};

/// What the four threads of a row know of it.
struct RowState {
  float largest;
  Vec sum;
};

/// Online softmax of a row: makes probabilities of its scores; returns what its values must be multiplied by.
template <bool kCap>
INGOT_INLINE float soften_row(const ScoreRule& rule, float* s, const Visible& keys, RowState& row) {
  const float lowest = -__builtin_inff();
  const float top = mask_row<kCap, false>(rule, s, kAttentionBlockVecs, keys);
  const float now = row.largest > top ? row.largest : top, base = now == lowest ? 0.0f : now;
  const Vec decay = exp_below(set1(row.largest) - set1(base));
  row.largest = now;
  row.sum = fma(row.sum, decay, exp_row<false>(s, kAttentionBlockVecs, base).v[0]);
  return any_lane(decay);
}

template <class T, int kParts>
INGOT_KERNEL(kAttentionThreads)
forward_kernel(const AttentionArgs a, const SpanTable table, int64_t channel_parts) {
  INGOT_SHARED(ScoreTile, scores);
  INGOT_SHARED(DepthTiles, tiles);
  INGOT_SHARED(PairTile, pairs);
  INGOT_SHARED(RowScalars, factors);
  const BlockPlace at = place_of_block(a, table, channel_parts, kParts * kTile, true);
  if (at.rows == 0) return;
  const int64_t group_heads = a.heads / a.kv_heads, first_pair = at.tile * kTile,
                end_pair = min64(first_pair + kTile, at.rows * group_heads);
  const Rows<T> q = rows_of<T>(a.q, a.q_stride, a.width, at), k = rows_of<T>(a.k, a.k_stride, a.width, at),
                v = rows_of<T>(a.v, a.v_stride, a.values(), at);
  const ScoreRule rule{a.scale, a.softcap};
  const int count = static_cast<int>(end_pair - first_pair), row = whole_row_of_thread();
  const int64_t first_token = first_pair / group_heads, end_token = (end_pair - 1) / group_heads + 1;
  name_pairs(pairs, first_pair, end_pair, at.group, group_heads);
  sync_threads();
  RowState state{-__builtin_inff(), zero()};
  Outputs o[kParts];
  INGOT_UNROLL
  for (int part = 0; part < kParts; ++part) o[part] = no_outputs();
  for (int64_t key0 = at.window.first(first_token) / kTile * kTile; key0 < end_token; key0 += kTile) {
    const int64_t keys = min64(kTile, end_token - key0);
    const Outputs own = products<T>(
        tiles, a.width, first_row_of_thread() < count && vector_of_thread() < keys,
        [&](int i) { return i < count ? q.at(pairs.token[i], pairs.head[i]) : nullptr; },
        [&](int i) { return i < keys ? k.at(key0 + i, at.group) : nullptr; });
    store_outputs(scores, own);
    sync_threads();
    if (row < count) {
      const int64_t t = pairs.token[row];
      const Visible visible{at.window.first(t) - key0, t - key0};
      const float factor = a.softcap > 0 ? soften_row<true>(rule, scores.x[row], visible, state)
                                         : soften_row<false>(rule, scores.x[row], visible, state);
      if (writes_scalars()) factors.x[row] = factor;
    }
    sync_threads();
    INGOT_UNROLL
    for (int part = 0; part < kParts; ++part) INGOT_UNROLL
    for (int r = 0; r < kEach; ++r)
      o[part].row[r] = o[part].row[r] * set1(factors.x[first_row_of_thread() + r]);
    for (int64_t key = 0; key < keys; key += kDepth) {
      INGOT_UNROLL
      for (int part = 0; part < kParts; ++part)
        load_rows<T>(tiles.of[part], at.first_channel + part * kTile, a.values(),
                     [&](int i) { return key + i < keys ? v.at(key0 + key + i, at.group) : nullptr; });
      sync_threads();
      INGOT_UNROLL
      for (int part = 0; part < kParts; ++part)
        if (first_row_of_thread() < count) add_keys(o[part], scores, static_cast<int>(key), tiles.of[part]);
      sync_threads();
    }
  }
  if (row < count) {
    const float sum = tree_sum(Lanes{{state.sum}});
    const int64_t token = at.first_row + pairs.token[row], head = pairs.head[row];
    if (writes_scalars()) factors.x[row] = 1.0f / sum;
    if (writes_scalars() && at.first_channel == 0) {
      if (a.lse != nullptr) a.lse[token * a.heads + head] = state.largest + any_lane(vlog(set1(sum)));
      if (a.max_logit != nullptr) raise_to(a.max_logit + head, state.largest);
    }
  }
  sync_threads();
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) {
    const int i = first_row_of_thread() + r;
    if (i >= count) continue;
    T* to = static_cast<T*>(a.o) + (at.first_row + pairs.token[i]) * a.o_stride + pairs.head[i] * a.values();
    INGOT_UNROLL
    for (int part = 0; part < kParts; ++part)
      put_channels(to, o[part].row[r] * set1(factors.x[i]), at.first_channel + part * kTile, a.values(),
                   false);
  }
}

INGOT_KERNEL(kAttentionThreads)
begin_kernel(float* max_logit, int64_t heads, float lowest) {
  if (global_thread() < heads) max_logit[global_thread()] = lowest;
}

}  // namespace

void launch_first_max_logit(GpuStream stream, float* max_logit, int64_t heads, bool has_rows) {
  launch("attention_begin", begin_kernel, grid_of(heads, kAttentionThreads), stream, max_logit, heads,
         has_rows ? -__builtin_inff() : 0.0f);
}

void launch_attention_forward(GpuStream stream, const AttentionArgs& args) {
  with_parts(args.type, args.values(), [&]<class T, int kParts>(int64_t channel_parts) {
    each_table(args, args.heads / args.kv_heads, [&](const SpanTable& table) {
      launch("attention_forward", forward_kernel<T, kParts>,
             {table.tiles * args.kv_heads * channel_parts, kAttentionThreads}, stream, args, table,
             channel_parts);
    });
  });
}

}  // namespace ingot::INGOT_ISA
