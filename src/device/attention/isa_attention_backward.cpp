// The backward of attention.h for one span and key-value head: see attention_kernels.h. For each share of
// rows that fits level 2, and each block of 64 keys that it sees, both ascending: P is recomputed from q, k
// and lse; dV += Pᵀ dO; dS = P * (dO Vᵀ - delta); dK += dSᵀ Q; dQ += dS K. Where there are several shares, dK
// and dV of all keys wait in scratch.
#include "device/attention/attention_ahead.h"
#include "device/attention/attention_tile.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int64_t kBlock = kAttentionBlock;
constexpr int kBlockVecs = kBlock / kLanes;

/// A share of the span's rows. Rows are (query row, head of the group), the head running fastest; past is
/// that of the share.
struct Work {
  const AttentionArgs* args;
  AttentionShare share;
  AttentionWindow window;
  int64_t group_heads, rows, past, keys, padded, v_padded;
  float *q, *d_q;              // [rows][padded]
  float* d_o;                  // [rows][v_padded]
  float *delta, *lse;          // [rows]
  float *k_turned, *v_turned;  // [width][64]
  float* k;                    // [64][padded]
  float* d_k;                  // [64 of the block][padded]
  float* d_v;                  // [64 of the block][v_padded]
  float *p, *d_s;              // [kAttentionBackRows][64]

  Visible visible(int64_t row, int64_t key0) const {
    const int64_t t = past + row / group_heads;
    return {window.first(t) - key0, min64(t, keys - 1) - key0};
  }
};

Work make_work(const AttentionBackwardUnit& u, const AttentionShare& share) {
  const AttentionArgs& a = u.args->forward;
  Work w;
  w.args = &a;
  w.share = share;
  w.window = a.window_of(*share.span);
  w.group_heads = a.heads / a.kv_heads;
  w.rows = (share.row1 - share.row0) * w.group_heads;
  w.past = share.span->past + share.row0;
  w.keys = share.span->key_count();
  w.padded = attention_padded(a.width);
  w.v_padded = attention_padded(a.values());
  const int64_t rows =
      min64(share.span->rows * w.group_heads, attention_back_rows(w.group_heads, a.width, a.values()));
  float* p = u.scratch;
  w.q = p, p += rows * w.padded;
  w.d_o = p, p += rows * w.v_padded;
  w.d_q = p, p += rows * w.padded;
  w.k_turned = p, p += kBlock * w.padded;
  w.v_turned = p, p += kBlock * w.v_padded;
  w.k = p, p += kBlock * w.padded;
  w.p = p, p += kAttentionBackRows * kBlock;
  w.d_s = p, p += kAttentionBackRows * kBlock;
  w.delta = p, p += attention_padded(rows);
  w.lse = p, p += attention_padded(rows);
  w.d_k = p;
  return w;
}

/// Loads the queries and output gradients, and delta = rowsum(dO * O).
template <class T, class O>
void load_rows(const Work& w, const AttentionBackwardUnit& u) {
  const AttentionArgs& a = *w.args;
  const int64_t head0 = u.group * w.group_heads;
  for (int64_t r = w.share.row0; r < w.share.row1; ++r) {
    const int64_t token = u.span->first_row + r;
    const int64_t row = (r - w.share.row0) * w.group_heads;
    const O* d_o = static_cast<const O*>(u.args->d_o) + token * u.args->d_o_stride + head0 * a.values();
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
void load_block(const Work& w, int64_t block, int64_t keys) {
  const AttentionArgs& a = *w.args;
  const T* k = static_cast<const T*>(block_of(a, w.share, block, false));
  const T* v = static_cast<const T*>(block_of(a, w.share, block, true));
  transpose_rows(k, a.k_stride, keys, a.width, w.k_turned);
  transpose_rows(v, a.v_stride, keys, a.values(), w.v_turned);
  copy_rows(k, a.k_stride, keys, a.width, w.k, w.padded);
}

/// p: scores in, probabilities out. d_s: dO Vᵀ in, gradients of the unscaled scores out. Beyond vecs: zeros.
/// kAll: every key is seen, all vectors there.
template <bool kCap, bool kAll>
INGOT_INLINE void gradient_row(const Work& w, float* p, float* d_s, int vecs, Visible keys, float lse,
                               float delta) {
  const Vec scale = set1(w.args->scale);
#pragma GCC unroll 4
  for (int v = 0; v < (kAll ? kBlockVecs : vecs); ++v) {
    Vec x = load(p + v * kLanes) * scale;
    Vec slope = scale;
    if (kCap) {
      const Vec t = vtanh(x / set1(w.args->softcap));
      x = t * set1(w.args->softcap);
      slope = slope * (set1(1.0f) - t * t);
    }
    Vec prob = exp_below(x - set1(lse));
    if (!kAll) prob = mask_keys(prob, v * kLanes, keys, zero());
    store(p + v * kLanes, prob);
    store(d_s + v * kLanes, prob * (load(d_s + v * kLanes) - set1(delta)) * slope);
  }
  for (int v = vecs; !kAll && v < kBlockVecs; ++v) {
    store(p + v * kLanes, zero());
    store(d_s + v * kLanes, zero());
  }
}

template <bool kCap, bool kAll>
INGOT_INLINE void gradient_rows(const Work& w, float* p, float* d_s, int64_t row, int64_t rows, int vecs,
                                int64_t key0) {
  for (int64_t j = 0; j < rows; ++j)
    gradient_row<kCap, kAll>(w, p + j * kBlock, d_s + j * kBlock, vecs,
                             kAll ? Visible{} : w.visible(row + j, key0), w.lse[row + j], w.delta[row + j]);
}

void gradient_tile(const Work& w, float* p, float* d_s, int64_t row, int64_t rows, int vecs, int64_t key0) {
  const bool all =
      vecs == kBlockVecs && all_visible(w.visible(row, key0), w.visible(row + rows - 1, key0), kBlock);
  if (w.args->softcap > 0)
    return all ? gradient_rows<true, true>(w, p, d_s, row, rows, vecs, key0)
               : gradient_rows<true, false>(w, p, d_s, row, rows, vecs, key0);
  return all ? gradient_rows<false, true>(w, p, d_s, row, rows, vecs, key0)
             : gradient_rows<false, false>(w, p, d_s, row, rows, vecs, key0);
}

/// Fills p and d_s for rows row0 .. row0 + count, and adds their share of dQ.
void query_tiles(const Work& w, Coming& coming, int64_t key0, int64_t row0, int64_t count) {
  const AttentionArgs& a = *w.args;
  for (int64_t i = 0; i < count; i += kTileRows) {
    const int64_t rows = min64(kTileRows, count - i);
    const int64_t row = row0 + i;
    const int64_t keys = min64(kBlock, min64(w.past + (row + rows - 1) / w.group_heads + 1, w.keys) - key0);
    const int vecs = static_cast<int>((keys + kLanes - 1) / kLanes);
    float* p = w.p + i * kBlock;
    float* d_s = w.d_s + i * kBlock;
    product<false>({rows, vecs, a.width, w.q + row * w.padded, w.padded, 1, w.k_turned, kBlock, p, kBlock,
                    false, nullptr});
    product<false>({rows, vecs, a.values(), w.d_o + row * w.v_padded, w.v_padded, 1, w.v_turned, kBlock, d_s,
                    kBlock, false, nullptr});
    gradient_tile(w, p, d_s, row, rows, vecs, key0);
    coming.fetch();
    product<false>({rows, w.padded / kLanes, keys, d_s, kBlock, 1, w.k, w.padded, w.d_q + row * w.padded,
                    w.padded, true, nullptr});
  }
}

/// Adds the share of rows row0 .. row0 + count to dK and dV. Keys that a row does not see have p = d_s = 0,
/// an exact identity, so a tile of keys starts at the first row that sees any of them.
void key_tiles(const Work& w, int64_t key0, int64_t keys, int64_t row0, int64_t count, bool first) {
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
void write_block(const Work& w, const AttentionBackwardUnit& u, int64_t key0, int64_t keys) {
  const AttentionArgs& a = *w.args;
  for (int64_t i = 0; i < keys; ++i) {
    const int64_t token = u.span->first_key_row() + key0 + i;
    write_row(static_cast<T*>(u.args->d_k) + token * u.args->d_k_stride + u.group * a.width,
              w.d_k + i * w.padded, a.width);
    write_row(static_cast<T*>(u.args->d_v) + token * u.args->d_v_stride + u.group * a.values(),
              w.d_v + i * w.v_padded, a.values());
  }
}

template <class T>
void write_queries(const Work& w, const AttentionBackwardUnit& u) {
  const AttentionArgs& a = *w.args;
  for (int64_t row = 0; row < w.rows; ++row) {
    const int64_t token = u.span->first_row + w.share.row0 + row / w.group_heads;
    const int64_t head = u.group * w.group_heads + row % w.group_heads;
    write_row(static_cast<T*>(u.args->d_q) + token * u.args->d_q_stride + head * a.width,
              w.d_q + row * w.padded, a.width);
  }
}

void load_rows(const Work& w, const AttentionBackwardUnit& u) {
  const bool narrow = w.args->type == DType::bf16, narrow_o = w.args->o_type == DType::bf16;
  if (narrow && narrow_o)
    load_rows<bf16, bf16>(w, u);
  else if (narrow)
    load_rows<bf16, float>(w, u);
  else if (narrow_o)
    load_rows<float, bf16>(w, u);
  else
    load_rows<float, float>(w, u);
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

void write_block(const Work& w, const AttentionBackwardUnit& u, int64_t key0, int64_t keys) {
  if (u.args->d_type == DType::bf16)
    write_block<bf16>(w, u, key0, keys);
  else
    write_block<float>(w, u, key0, keys);
}

/// One share of the span's rows against every block that they see, in ascending order.
void run_share(const AttentionBackwardUnit& u, const AttentionShare& share, const AttentionShare* next) {
  const AttentionArgs& a = u.args->forward;
  Work w = make_work(u, share);
  const bool alone = share.row0 == 0 && share.row1 == share.span->rows;
  float* sums = w.d_k;
  load_rows(w, u);
  const int64_t first = w.window.first(w.past) / kBlock;
  const int64_t last = (min64(w.past + share.row1 - share.row0, w.keys) + kBlock - 1) / kBlock - 1;
  Coming coming(a, next, last - first + 1);
  coming.want(coming.rows[0], a, next, a.q, a.type, a.q_stride, a.width);
  coming.want(coming.rows[1], a, next, u.args->d_o, a.o_type, u.args->d_o_stride, a.values());
  coming.want(coming.rows[2], a, next, a.o, a.o_type, a.o_stride, a.values());
  coming.want(coming.rows[3], a, &share, u.args->d_q, u.args->d_type, u.args->d_q_stride, a.width);
  for (int64_t block = first; block <= last; ++block) {
    const int64_t key0 = block * kBlock, keys = min64(kBlock, w.keys - key0);
    const Seen seen = rows_that_see(a, *share.span, key0);
    const int64_t begin = max64(seen.from - share.row0, 0) * w.group_heads;
    const int64_t end = min64(seen.to - share.row0, share.row1 - share.row0) * w.group_heads;
    if (begin >= end) continue;
    w.d_k = sums + (alone ? 0 : key0 * (w.padded + w.v_padded));
    w.d_v = w.d_k + kBlock * w.padded;
    if (a.type == DType::bf16)
      load_block<bf16>(w, block, keys);
    else
      load_block<float>(w, block, keys);
    coming.before_block(a, share, block, last, end - begin);
    if (seen.to <= share.row1) {
      const AttentionBackwardArgs& d = *u.args;
      const int64_t token = u.span->first_key_row() + key0;
      coming.d_k =
          ahead_of(d.d_k, d.d_type, token * d.d_k_stride + u.group * a.width, d.d_k_stride, keys, a.width);
      coming.d_v = ahead_of(d.d_v, d.d_type, token * d.d_v_stride + u.group * a.values(), d.d_v_stride, keys,
                            a.values());
    }
    for (int64_t row = begin; row < end; row += kAttentionBackRows) {
      const int64_t count = min64(kAttentionBackRows, end - row);
      query_tiles(w, coming, key0, row, count);
      key_tiles(w, key0, keys, row, count, row == begin && seen.from >= share.row0);
    }
    if (seen.to <= share.row1) write_block(w, u, key0, keys);
  }
  if (u.args->d_type == DType::bf16)
    write_queries<bf16>(w, u);
  else
    write_queries<float>(w, u);
}

/// Zeros for the keys of blocks that no row sees.
void write_unseen(const AttentionBackwardUnit& u) {
  const AttentionArgs& a = u.args->forward;
  Work w = make_work(u, {u.span, u.group, 0, 0});
  w.d_v = w.d_k + kBlock * w.padded;
  for (int64_t key0 = 0; key0 < w.keys; key0 += kBlock) {
    const Seen seen = rows_that_see(a, *u.span, key0);
    if (seen.from < seen.to) continue;
    for (int64_t i = 0; i < kBlock * (w.padded + w.v_padded); i += kLanes) store(w.d_k + i, zero());
    write_block(w, u, key0, min64(kBlock, w.keys - key0));
  }
}

}  // namespace

void attention_backward_unit(const AttentionBackwardUnit& u) {
  const AttentionArgs& a = u.args->forward;
  const int64_t group_heads = a.heads / a.kv_heads;
  const int64_t step = attention_back_rows(group_heads, a.width, a.values()) / group_heads;
  write_unseen(u);
  for (int64_t row = 0; row < u.span->rows; row += step) {
    const AttentionShare share{u.span, u.group, row, min64(row + step, u.span->rows)};
    AttentionShare next{u.span, u.group, share.row1, min64(share.row1 + step, u.span->rows)};
    if (share.row1 == u.span->rows && u.next_span != nullptr)
      next = {u.next_span, u.next_group, 0, min64(step, u.next_span->rows)};
    run_share(u, share, next.row0 < next.row1 ? &next : nullptr);
  }
}

}  // namespace ingot::INGOT_ISA
