// The backward of attention.h for one span and key-value head: see attention_kernels.h. For each range of
// rows that fits the level 2 cache, and each block of 64 keys that it sees, both ascending: P is recomputed
// from q, k and lse;
//   dV += P^T dO;  dS = P * (dO V^T - delta);  dK += dS^T Q;  dQ += dS K.
// Where there are several ranges, dK and dV of all keys are summed in scratch.
#include "device/attention/attention_prefetch.h"
#include "device/attention/attention_tile.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int64_t kBlock = kAttentionBlock;
constexpr int kBlockVecs = kAttentionBlockVecs;

/// A range of the span's rows and its scratch. Rows are (query row, head of the group), the head running
/// fastest; past is that of the range.
struct Buffers {
  const AttentionArgs* args;
  AttentionRange range;
  AttentionWindow window;
  int64_t group_heads, rows, past, keys, padded, v_padded;
  float *q, *d_q;                      // [rows][padded]
  float* d_o;                          // [rows][v_padded]
  float *delta, *lse;                  // [rows]
  float *k_transposed, *v_transposed;  // [width][64]
  float* k;                            // [64][padded]
  float* d_k;                          // [64 of the block][padded]
  float* d_v;                          // [64 of the block][v_padded]
  float *p, *d_s;                      // [kAttentionBackwardRows][64]

  Visible visible(int64_t row, int64_t key0) const {
    const int64_t t = past + row / group_heads;
    return {window.first(t) - key0, min64(t, keys - 1) - key0};
  }
};

Buffers make_buffers(const AttentionBackwardTask& t, const AttentionRange& range) {
  const AttentionArgs& a = t.args->forward;
  Buffers w;
  w.args = &a;
  w.range = range;
  w.window = a.window_of(*range.span);
  w.group_heads = a.heads / a.kv_heads;
  w.rows = (range.row1 - range.row0) * w.group_heads;
  w.past = range.span->past + range.row0;
  w.keys = range.span->key_count();
  w.padded = attention_padded(a.width);
  w.v_padded = attention_padded(a.values());
  const int64_t rows =
      min64(range.span->rows * w.group_heads, attention_backward_rows(w.group_heads, a.width, a.values()));
  float* p = t.scratch;
  w.q = p, p += rows * w.padded;
  w.d_o = p, p += rows * w.v_padded;
  w.d_q = p, p += rows * w.padded;
  w.k_transposed = p, p += kBlock * w.padded;
  w.v_transposed = p, p += kBlock * w.v_padded;
  w.k = p, p += kBlock * w.padded;
  w.p = p, p += kAttentionBackwardRows * kBlock;
  w.d_s = p, p += kAttentionBackwardRows * kBlock;
  w.delta = p, p += attention_padded(rows);
  w.lse = p, p += attention_padded(rows);
  w.d_k = p;
  return w;
}

/// Loads the queries and output gradients, and delta = rowsum(dO * O).
template <class T, class O>
void load_rows(const Buffers& w, const AttentionBackwardTask& t) {
  const AttentionArgs& a = *w.args;
  const int64_t head0 = t.group * w.group_heads;
  for (int64_t r = w.range.row0; r < w.range.row1; ++r) {
    const int64_t token = t.span->first_row + r;
    const int64_t row = (r - w.range.row0) * w.group_heads;
    const O* d_o = static_cast<const O*>(t.args->d_o) + token * t.args->d_o_stride + head0 * a.values();
    const O* o = static_cast<const O*>(a.o) + token * a.o_stride + head0 * a.values();
    const T* q = static_cast<const T*>(a.q) + token * a.q_stride + head0 * a.width;
    copy_rows(q, a.width, w.group_heads, a.width, w.q + row * w.padded, w.padded);
    copy_rows(d_o, a.values(), w.group_heads, a.values(), w.d_o + row * w.v_padded, w.v_padded);
    for (int64_t h = 0; h < w.group_heads; ++h) {
      w.delta[row + h] = row_dot(d_o + h * a.values(), o + h * a.values(), a.values());
      w.lse[row + h] = a.lse[token * a.heads + head0 + h];
    }
  }
}

template <class T>
void load_block(const Buffers& w, int64_t block, int64_t keys) {
  const AttentionArgs& a = *w.args;
  const T* k = static_cast<const T*>(block_of(a, w.range, block, false));
  const T* v = static_cast<const T*>(block_of(a, w.range, block, true));
  transpose_rows(k, a.k_stride, keys, a.width, w.k_transposed);
  transpose_rows(v, a.v_stride, keys, a.values(), w.v_transposed);
  copy_rows(k, a.k_stride, keys, a.width, w.k, w.padded);
}

/// p: scores in, probabilities out. d_s: dO V^T in, gradients of the unscaled scores out. Beyond vecs: 0.
/// kAll: every key is seen, all vectors there.
template <bool kCap, bool kAll>
INGOT_INLINE void gradient_row(const ScoreRule& rule, float* p, float* d_s, int vecs, Visible keys, float lse,
                               float delta) {
#pragma GCC unroll 4
  for (int v = 0; v < (kAll ? kBlockVecs : vecs); ++v) {
    const ProbabilityGradients g = gradients_of<kCap, kAll>(
        rule, load(p + v * kLanes), load(d_s + v * kLanes), v * kLanes, keys, lse, delta);
    store(p + v * kLanes, g.p);
    store(d_s + v * kLanes, g.d_s);
  }
  for (int v = vecs; !kAll && v < kBlockVecs; ++v) {
    store(p + v * kLanes, zero());
    store(d_s + v * kLanes, zero());
  }
}

template <bool kCap, bool kAll>
INGOT_INLINE void gradient_rows(const Buffers& w, float* p, float* d_s, int64_t row, int64_t rows, int vecs,
                                int64_t key0) {
  const ScoreRule rule{w.args->scale, w.args->softcap};
  for (int64_t j = 0; j < rows; ++j)
    gradient_row<kCap, kAll>(rule, p + j * kBlock, d_s + j * kBlock, vecs,
                             kAll ? Visible{} : w.visible(row + j, key0), w.lse[row + j], w.delta[row + j]);
}

void gradient_tile(const Buffers& w, float* p, float* d_s, int64_t row, int64_t rows, int vecs,
                   int64_t key0) {
  const bool all =
      vecs == kBlockVecs && all_visible(w.visible(row, key0), w.visible(row + rows - 1, key0), kBlock);
  if (w.args->softcap > 0)
    return all ? gradient_rows<true, true>(w, p, d_s, row, rows, vecs, key0)
               : gradient_rows<true, false>(w, p, d_s, row, rows, vecs, key0);
  return all ? gradient_rows<false, true>(w, p, d_s, row, rows, vecs, key0)
             : gradient_rows<false, false>(w, p, d_s, row, rows, vecs, key0);
}

/// Fills p and d_s for rows row0 .. row0 + count, and adds to dQ.
void query_tiles(const Buffers& w, PrefetchPlan& prefetch, int64_t key0, int64_t row0, int64_t count) {
  const AttentionArgs& a = *w.args;
  for (int64_t i = 0; i < count; i += kTileRows) {
    const int64_t rows = min64(kTileRows, count - i);
    const int64_t row = row0 + i;
    const int64_t keys = min64(kBlock, min64(w.past + (row + rows - 1) / w.group_heads + 1, w.keys) - key0);
    const int vecs = static_cast<int>((keys + kLanes - 1) / kLanes);
    float* p = w.p + i * kBlock;
    float* d_s = w.d_s + i * kBlock;
    product<false>({rows, vecs, a.width, w.q + row * w.padded, w.padded, 1, w.k_transposed, kBlock, p, kBlock,
                    false, nullptr});
    product<false>({rows, vecs, a.values(), w.d_o + row * w.v_padded, w.v_padded, 1, w.v_transposed, kBlock,
                    d_s, kBlock, false, nullptr});
    gradient_tile(w, p, d_s, row, rows, vecs, key0);
    prefetch.advance();
    product<false>({rows, w.padded / kLanes, keys, d_s, kBlock, 1, w.k, w.padded, w.d_q + row * w.padded,
                    w.padded, true, nullptr});
  }
}

/// Adds what rows row0 .. row0 + count give to dK and dV. Keys that a row does not see have p = d_s = 0,
/// an exact identity, so a tile of keys starts at the first row that sees any of them.
void key_tiles(const Buffers& w, int64_t key0, int64_t keys, int64_t row0, int64_t count, bool first) {
  for (int64_t key = 0; key < keys; key += kTileRows) {
    const int64_t tile = min64(kTileRows, keys - key);
    const int64_t skip = min64(count, max64(0, (key0 + key - w.past) * w.group_heads - row0));
    const int64_t begin = row0 + skip;
    product<true>({tile, w.v_padded / kLanes, count - skip, w.p + skip * kBlock + key, 1, kBlock,
                   w.d_o + begin * w.v_padded, w.v_padded, w.d_v + key * w.v_padded, w.v_padded, !first,
                   nullptr});
    product<true>({tile, w.padded / kLanes, count - skip, w.d_s + skip * kBlock + key, 1, kBlock,
                   w.q + begin * w.padded, w.padded, w.d_k + key * w.padded, w.padded, !first, nullptr});
  }
}

template <class T>
void write_block(const Buffers& w, const AttentionBackwardTask& t, int64_t key0, int64_t keys) {
  const AttentionArgs& a = *w.args;
  for (int64_t i = 0; i < keys; ++i) {
    const int64_t token = t.span->first_key_row() + key0 + i;
    write_row(static_cast<T*>(t.args->d_k) + token * t.args->d_k_stride + t.group * a.width,
              w.d_k + i * w.padded, a.width);
    write_row(static_cast<T*>(t.args->d_v) + token * t.args->d_v_stride + t.group * a.values(),
              w.d_v + i * w.v_padded, a.values());
  }
}

template <class T>
void write_queries(const Buffers& w, const AttentionBackwardTask& t) {
  const AttentionArgs& a = *w.args;
  for (int64_t row = 0; row < w.rows; ++row) {
    const int64_t token = t.span->first_row + w.range.row0 + row / w.group_heads;
    const int64_t head = t.group * w.group_heads + row % w.group_heads;
    write_row(static_cast<T*>(t.args->d_q) + token * t.args->d_q_stride + head * a.width,
              w.d_q + row * w.padded, a.width);
  }
}

void load_rows(const Buffers& w, const AttentionBackwardTask& t) {
  const bool narrow = w.args->type == DType::bf16, narrow_o = w.args->o_type == DType::bf16;
  if (narrow && narrow_o)
    load_rows<bf16, bf16>(w, t);
  else if (narrow)
    load_rows<bf16, float>(w, t);
  else if (narrow_o)
    load_rows<float, bf16>(w, t);
  else
    load_rows<float, float>(w, t);
  for (int64_t i = 0; i < w.rows * w.padded; i += kLanes) store(w.d_q + i, zero());
}

/// The rows of the span that see any key of a block.
struct Seen {
  int64_t from, to;
};
Seen rows_that_see(const AttentionArgs& a, const AttentionSpan& span, int64_t key0) {
  const int64_t keys = min64(kBlock, span.key_count() - key0);
  const int64_t end = a.window > 0 ? a.window_of(span).end(key0 + keys - 1) - span.past : span.rows;
  return {max64(0, key0 - span.past), min64(span.rows, end)};
}

void write_block(const Buffers& w, const AttentionBackwardTask& t, int64_t key0, int64_t keys) {
  if (t.args->d_type == DType::bf16)
    write_block<bf16>(w, t, key0, keys);
  else
    write_block<float>(w, t, key0, keys);
}

/// One range of the span's rows against every block that they see, in ascending order.
void run_range(const AttentionBackwardTask& t, const AttentionRange& range, const AttentionRange* next) {
  const AttentionArgs& a = t.args->forward;
  Buffers w = make_buffers(t, range);
  const bool alone = range.row0 == 0 && range.row1 == range.span->rows;
  float* sums = w.d_k;
  load_rows(w, t);
  const int64_t first = w.window.first(w.past) / kBlock;
  const int64_t last = (min64(w.past + range.row1 - range.row0, w.keys) + kBlock - 1) / kBlock - 1;
  PrefetchPlan prefetch(a, next, last - first + 1);
  prefetch.add_rows(prefetch.rows[0], a, next, a.q, a.type, a.q_stride, a.width);
  prefetch.add_rows(prefetch.rows[1], a, next, t.args->d_o, a.o_type, t.args->d_o_stride, a.values());
  prefetch.add_rows(prefetch.rows[2], a, next, a.o, a.o_type, a.o_stride, a.values());
  prefetch.add_rows(prefetch.rows[3], a, &range, t.args->d_q, t.args->d_type, t.args->d_q_stride, a.width);
  for (int64_t block = first; block <= last; ++block) {
    const int64_t key0 = block * kBlock, keys = min64(kBlock, w.keys - key0);
    const Seen seen = rows_that_see(a, *range.span, key0);
    const int64_t begin = max64(seen.from - range.row0, 0) * w.group_heads;
    const int64_t end = min64(seen.to - range.row0, range.row1 - range.row0) * w.group_heads;
    if (begin >= end) continue;
    w.d_k = sums + (alone ? 0 : key0 * (w.padded + w.v_padded));
    w.d_v = w.d_k + kBlock * w.padded;
    if (a.type == DType::bf16)
      load_block<bf16>(w, block, keys);
    else
      load_block<float>(w, block, keys);
    prefetch.plan_block(a, range, block, last, end - begin);
    if (seen.to <= range.row1) {
      const AttentionBackwardArgs& d = *t.args;
      const int64_t token = t.span->first_key_row() + key0;
      prefetch.d_k = prefetch_rows_of(d.d_k, d.d_type, token * d.d_k_stride + t.group * a.width, d.d_k_stride,
                                      keys, a.width);
      prefetch.d_v = prefetch_rows_of(d.d_v, d.d_type, token * d.d_v_stride + t.group * a.values(),
                                      d.d_v_stride, keys, a.values());
    }
    for (int64_t row = begin; row < end; row += kAttentionBackwardRows) {
      const int64_t count = min64(kAttentionBackwardRows, end - row);
      query_tiles(w, prefetch, key0, row, count);
      key_tiles(w, key0, keys, row, count, row == begin && seen.from >= range.row0);
    }
    if (seen.to <= range.row1) write_block(w, t, key0, keys);
  }
  if (t.args->d_type == DType::bf16)
    write_queries<bf16>(w, t);
  else
    write_queries<float>(w, t);
}

/// Zeros for the keys of blocks that no row sees.
void write_unseen(const AttentionBackwardTask& t) {
  const AttentionArgs& a = t.args->forward;
  Buffers w = make_buffers(t, {t.span, t.group, 0, 0});
  w.d_v = w.d_k + kBlock * w.padded;
  for (int64_t key0 = 0; key0 < w.keys; key0 += kBlock) {
    const Seen seen = rows_that_see(a, *t.span, key0);
    if (seen.from < seen.to) continue;
    for (int64_t i = 0; i < kBlock * (w.padded + w.v_padded); i += kLanes) store(w.d_k + i, zero());
    write_block(w, t, key0, min64(kBlock, w.keys - key0));
  }
}

}  // namespace

void attention_backward_task(const AttentionBackwardTask& t) {
  const AttentionArgs& a = t.args->forward;
  const int64_t group_heads = a.heads / a.kv_heads;
  const int64_t step = attention_backward_rows(group_heads, a.width, a.values()) / group_heads;
  write_unseen(t);
  for (int64_t row = 0; row < t.span->rows; row += step) {
    const AttentionRange range{t.span, t.group, row, min64(row + step, t.span->rows)};
    AttentionRange next{t.span, t.group, range.row1, min64(range.row1 + step, t.span->rows)};
    if (range.row1 == t.span->rows && t.next_span != nullptr)
      next = {t.next_span, t.next_group, 0, min64(step, t.next_span->rows)};
    run_range(t, range, next.row0 < next.row1 ? &next : nullptr);
  }
}

}  // namespace ingot::INGOT_ISA
