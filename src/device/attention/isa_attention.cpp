// The forward of attention.h for one task: see attention_kernels.h. For each block of 64 keys, keys are
// transposed and values copied once, then tiles of 6 rows go through scores, online softmax and P V while in
// registers and the level 1 cache. A single tile (decoding) is bound by reading memory: keys are transposed
// in registers, or read as they are where a cache holds them turned, and values are read in place.
#include "device/attention/attention_prefetch.h"
#include "device/attention/attention_tile.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int64_t kBlock = kAttentionBlock;
constexpr int kBlockVecs = kAttentionBlockVecs;
// Channels of turned keys between prefetches. One where vectors are long; where they are short, asking so
// often takes longer than the products.
constexpr int64_t kTurnedStep = kLanes == 16 ? 1 : 4;

/// A task's scratch. Rows are (query row, head of the group), the head running fastest.
struct Buffers {
  const AttentionArgs* args;
  const AttentionSpan* span;
  AttentionWindow window;
  int64_t group_heads, rows, first_position, keys, padded, v_padded;
  float* q;             // [rows][padded]
  float* o;             // [rows][v_padded], not yet divided by the sum
  float* sum;           // [rows][16 virtual lanes]
  float* largest;       // [rows]
  float* k_transposed;  // [width][64]
  float* v;             // [64][v_padded]
  float* s;             // [6][64]: scores, then probabilities
  float* factor;        // [6]

  int64_t position(int64_t row) const { return first_position + row / group_heads; }
  Visible visible(int64_t row, int64_t key0) const {
    const int64_t t = position(row);
    return {window.first(t) - key0, min64(t, keys - 1) - key0};
  }
};

Buffers make_buffers(const AttentionTask& t) {
  const AttentionArgs& a = *t.args;
  Buffers w;
  w.args = t.args;
  w.span = t.range.span;
  w.window = a.window_of(*w.span);
  w.group_heads = a.heads / a.kv_heads;
  w.rows = (t.range.row1 - t.range.row0) * w.group_heads;
  w.first_position = w.span->past + t.range.row0;
  w.keys = w.span->key_count();
  w.padded = attention_padded(a.width);
  w.v_padded = attention_padded(a.values());
  float* p = t.scratch;
  w.q = p, p += w.rows * w.padded;
  w.o = p, p += w.rows * w.v_padded;
  w.sum = p, p += w.rows * kVirtualLanes;
  w.k_transposed = p, p += w.padded * kBlock;
  w.v = p, p += w.v_padded * kBlock;
  w.s = p, p += kTileRows * kBlock;
  w.factor = p, p += 16;
  w.largest = p;
  return w;
}

/// Online softmax of a tile: makes probabilities of scores relative to the rows' new maxima, decays the
/// sums, and leaves in w.factor what the values summed so far must be multiplied by.
template <bool kCap, bool kAll>
INGOT_INLINE void softmax_rows(const Buffers& w, int64_t row0, int64_t rows, int vecs, int64_t key0) {
  const float lowest = -__builtin_inff();
  const ScoreRule rule{w.args->scale, w.args->softcap};
  float before[16] = {}, base[16] = {};
  for (int64_t i = 0; i < rows; ++i) {
    const Visible visible = kAll ? Visible{} : w.visible(row0 + i, key0);
    const float top = mask_row<kCap, kAll>(rule, w.s + i * kBlock, vecs, visible);
    before[i] = w.largest[row0 + i];
    const float now = before[i] > top ? before[i] : top;
    w.largest[row0 + i] = now;
    base[i] = now == lowest ? 0.0f : now;  // nothing seen yet: keep inf - inf away
  }
  for (int i = 0; i < kTileRows; i += kLanes)
    store(w.factor + i, exp_below(load(before + i) - load(base + i)));
  for (int64_t i = 0; i < rows; ++i) {
    const Lanes total = exp_row<kAll>(w.s + i * kBlock, vecs, base[i]);
    const Vec decay = set1(w.factor[i]);
    float* sum = w.sum + (row0 + i) * kVirtualLanes;
    for (int v = 0; v < kLaneVecs; ++v)
      store(sum + v * kLanes, fma(load(sum + v * kLanes), decay, total.v[v]));
  }
}

void softmax_tile(const Buffers& w, int64_t row0, int64_t rows, int vecs, int64_t key0) {
  const bool all =
      vecs == kBlockVecs && all_visible(w.visible(row0, key0), w.visible(row0 + rows - 1, key0), kBlock);
  if (w.args->softcap > 0)
    return all ? softmax_rows<true, true>(w, row0, rows, vecs, key0)
               : softmax_rows<true, false>(w, row0, rows, vecs, key0);
  return all ? softmax_rows<false, true>(w, row0, rows, vecs, key0)
             : softmax_rows<false, false>(w, row0, rows, vecs, key0);
}

INGOT_INLINE bool turned(const AttentionArgs& a, const AttentionRange& range) {
  return a.turned_keys && range.span->k_blocks != nullptr;
}

template <class T>
void load_block(const Buffers& w, const AttentionTask& t, int64_t block, int64_t keys) {
  const AttentionArgs& a = *w.args;
  const T* k = static_cast<const T*>(block_of(a, t.range, block, false));
  if (turned(a, t.range))
    copy_rows(k, kBlock, a.width, kBlock, w.k_transposed, kBlock);
  else
    transpose_rows(k, a.k_stride, keys, a.width, w.k_transposed);
  copy_rows(static_cast<const T*>(block_of(a, t.range, block, true)), a.v_stride, keys, a.values(), w.v,
            w.v_padded);
}

void run_block(const Buffers& w, PrefetchPlan& prefetch, int64_t block, int64_t row_begin, int64_t row_end) {
  const AttentionArgs& a = *w.args;
  const int64_t key0 = block * kBlock;
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int64_t rows = min64(kTileRows, row_end - row);
    const int64_t keys = min64(kBlock, min64(w.position(row + rows - 1) + 1, w.keys) - key0);
    const int vecs = static_cast<int>((keys + kLanes - 1) / kLanes);
    product<false>({rows, vecs, a.width, w.q + row * w.padded, w.padded, 1, w.k_transposed, kBlock, w.s,
                    kBlock, false, nullptr});
    softmax_tile(w, row, rows, vecs, key0);
    prefetch.advance();
    product<false>({rows, w.v_padded / kLanes, keys, w.s, kBlock, 1, w.v, w.v_padded, w.o + row * w.v_padded,
                    w.v_padded, true, w.factor});
  }
}

/// Scores of MR rows; the keys are transposed kLanes by kLanes. Before each kLanes keys the block's values
/// are prefetched, and before each kLanes channels a part of the next block: memory is never asked for more
/// at once than it answers.
template <class T, int MR>
void transposed_scores(const Buffers& w, const T* k, int64_t keys, int64_t row_begin, PrefetchRows& values,
                       PrefetchPlan& prefetch) {
  const int64_t width = w.args->width, stride = w.args->k_stride;
  const float* q = w.q + row_begin * w.padded;
  for (int64_t i = 0; i < keys; i += kLanes) {
    values.advance(kLanes);
    Vec sum[MR];
    for (int m = 0; m < MR; ++m) sum[m] = zero();
    for (int64_t j = 0; j < width; j += kLanes) {
      prefetch.advance();
      Vec r[kLanes];
      const int depth = static_cast<int>(min64(kLanes, width - j));
      if (i + kLanes <= keys && depth == kLanes) {
#pragma GCC unroll 16
        for (int n = 0; n < kLanes; ++n) r[n] = load(k + (i + n) * stride + j);
      } else {
        for (int n = 0; n < kLanes; ++n)
          r[n] = i + n < keys ? load_tail(k + (i + n) * stride + j, depth) : zero();
      }
      transpose(r);
      if (depth == kLanes) {
#pragma GCC unroll 16
        for (int n = 0; n < kLanes; ++n)
#pragma GCC unroll 6
          for (int m = 0; m < MR; ++m) sum[m] = fma(set1(q[m * w.padded + j + n]), r[n], sum[m]);
      } else {
        for (int n = 0; n < depth; ++n)
          for (int m = 0; m < MR; ++m) sum[m] = fma(set1(q[m * w.padded + j + n]), r[n], sum[m]);
      }
    }
    for (int m = 0; m < MR; ++m) store(w.s + m * kBlock + i, sum[m]);
  }
}

template <class T>
void transposed_scores(const Buffers& w, const T* k, int64_t keys, int64_t row_begin, int64_t rows,
                       PrefetchRows& values, PrefetchPlan& prefetch) {
  switch (rows) {
    case 1:
      return transposed_scores<T, 1>(w, k, keys, row_begin, values, prefetch);
    case 2:
      return transposed_scores<T, 2>(w, k, keys, row_begin, values, prefetch);
    case 3:
      return transposed_scores<T, 3>(w, k, keys, row_begin, values, prefetch);
    case 4:
      return transposed_scores<T, 4>(w, k, keys, row_begin, values, prefetch);
    case 5:
      return transposed_scores<T, 5>(w, k, keys, row_begin, values, prefetch);
    default:
      return transposed_scores<T, 6>(w, k, keys, row_begin, values, prefetch);
  }
}

/// Vectors of turned keys that a tile of rows takes at once: as many as leave registers for keys and a query.
constexpr int turned_vecs(int64_t rows) {
  return rows <= 2 ? 4 : kTileVecs;
}

/// Scores of MR rows and NV vectors of keys that lie turned. Values and the next block are prefetched as in
/// transposed_scores().
template <class T, int MR, int NV>
INGOT_INLINE void turned_scores(const Buffers& w, const T* k, int vec, int64_t row_begin,
                                PrefetchRows& values, PrefetchPlan& prefetch) {
  const float* q = w.q + row_begin * w.padded;
  Vec sum[MR][NV];
#pragma GCC unroll 6
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) sum[m][v] = zero();
  k += vec * kLanes;
  const auto add_channel = [&]() __attribute__((always_inline)) {
    Vec kv[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) kv[v] = load(k + v * kLanes);
#pragma GCC unroll 6
    for (int m = 0; m < MR; ++m) {
      const Vec x = set1(q[m * w.padded]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) sum[m][v] = fma(x, kv[v], sum[m][v]);
    }
    k += kBlock, ++q;
  };
  int64_t left = w.args->width;
  for (; left >= kTurnedStep; left -= kTurnedStep) {
    values.advance(kTurnedStep), prefetch.advance();
#pragma GCC unroll 4
    for (int64_t j = 0; j < kTurnedStep; ++j) add_channel();
  }
  if (left > 0) values.advance(left), prefetch.advance();
  for (; left > 0; --left) add_channel();
  for (int m = 0; m < MR; ++m)
    for (int v = 0; v < NV; ++v) store(w.s + m * kBlock + (vec + v) * kLanes, sum[m][v]);
}

template <class T, int MR>
void turned_scores(const Buffers& w, const T* k, int vecs, int64_t row_begin, PrefetchRows& values,
                   PrefetchPlan& prefetch) {
  int vec = 0;
  if constexpr (turned_vecs(MR) == 4)
    for (; vec + 4 <= vecs; vec += 4) turned_scores<T, MR, 4>(w, k, vec, row_begin, values, prefetch);
  for (; vec + 2 <= vecs; vec += 2) turned_scores<T, MR, 2>(w, k, vec, row_begin, values, prefetch);
  if (vec < vecs) turned_scores<T, MR, 1>(w, k, vec, row_begin, values, prefetch);
}

template <class T>
void turned_scores(const Buffers& w, const T* k, int vecs, int64_t row_begin, int64_t rows,
                   PrefetchRows& values, PrefetchPlan& prefetch) {
  switch (rows) {
    case 1:
      return turned_scores<T, 1>(w, k, vecs, row_begin, values, prefetch);
    case 2:
      return turned_scores<T, 2>(w, k, vecs, row_begin, values, prefetch);
    case 3:
      return turned_scores<T, 3>(w, k, vecs, row_begin, values, prefetch);
    case 4:
      return turned_scores<T, 4>(w, k, vecs, row_begin, values, prefetch);
    case 5:
      return turned_scores<T, 5>(w, k, vecs, row_begin, values, prefetch);
    default:
      return turned_scores<T, 6>(w, k, vecs, row_begin, values, prefetch);
  }
}

/// A block that at most one tile of rows sees.
template <class T>
void run_tile(const Buffers& w, const AttentionTask& t, PrefetchPlan& prefetch, int64_t block, int64_t row,
              int64_t rows, int64_t keys) {
  const AttentionArgs& a = *w.args;
  const T* v = static_cast<const T*>(block_of(a, t.range, block, true));
  PrefetchRows values = prefetch_rows_of(v, a.type, 0, a.v_stride, keys, a.values());
  const T* k = static_cast<const T*>(block_of(a, t.range, block, false));
  const int vecs = static_cast<int>((keys + kLanes - 1) / kLanes);
  if (turned(a, t.range)) {
    prefetch.spread(ceil_div(vecs, turned_vecs(rows)) * ceil_div(a.width, kTurnedStep));
    turned_scores(w, k, vecs, row, rows, values, prefetch);
  } else {
    prefetch.spread(vecs * ((a.width + kLanes - 1) / kLanes));
    transposed_scores(w, k, keys, row, rows, values, prefetch);
  }
  softmax_tile(w, row, rows, vecs, block * kBlock);
  const auto weigh = [&]<class V>(const V* values, int64_t stride) {
    product<false, V>({rows, w.v_padded / kLanes, keys, w.s, kBlock, 1, values, stride,
                       w.o + row * w.v_padded, w.v_padded, true, w.factor});
  };
  if (a.values() == w.v_padded) return weigh(v, a.v_stride);
  copy_rows(v, a.v_stride, keys, a.values(), w.v, w.v_padded);
  weigh(w.v, w.v_padded);
}

template <class T>
void load_queries(const Buffers& w, const AttentionTask& t) {
  const AttentionArgs& a = *w.args;
  const T* q = static_cast<const T*>(a.q) + (w.span->first_row + t.range.row0) * a.q_stride;
  for (int64_t r = 0; r < t.range.row1 - t.range.row0; ++r)
    copy_rows(q + r * a.q_stride + t.range.group * w.group_heads * a.width, a.width, w.group_heads, a.width,
              w.q + r * w.group_heads * w.padded, w.padded);
}

/// The tree sums (reduce.h) of kLanes rows, one per lane.
INGOT_INLINE Vec row_sums(const float* sum) {
  Vec x[kVirtualLanes];
  for (int v = 0; v < kLaneVecs; ++v) {
    Vec r[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) r[i] = load(sum + i * kVirtualLanes + v * kLanes);
    transpose(r);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) x[v * kLanes + i] = r[i];
  }
#pragma GCC unroll 4
  for (int step = kVirtualLanes / 2; step >= 1; step /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < step; ++i) x[i] = x[i] + x[i + step];
  return x[0];
}

/// Divides by the sums, writes o and lse, raises the maxima.
void finish(const Buffers& w, const AttentionTask& t) {
  const AttentionArgs& a = *w.args;
  for (int64_t first = 0; first < w.rows; first += kLanes) {
    const int64_t count = min64(kLanes, w.rows - first);
    float inverse[kLanes], logs[kLanes];
    const Vec sums = row_sums(w.sum + first * kVirtualLanes);
    store(inverse, set1(1.0f) / sums);
    store(logs, vlog(sums));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = first + i;
      float* o = w.o + row * w.v_padded;
      for (int64_t j = 0; j < w.v_padded; j += kLanes) store(o + j, load(o + j) * set1(inverse[i]));
      const int64_t token = w.span->first_row + t.range.row0 + row / w.group_heads;
      const int64_t head = t.range.group * w.group_heads + row % w.group_heads;
      const int64_t at = token * a.o_stride + head * a.values();
      if (a.o_type == DType::bf16)
        write_row(static_cast<bf16*>(a.o) + at, o, a.values());
      else
        write_row(static_cast<float*>(a.o) + at, o, a.values());
      if (a.lse != nullptr) a.lse[token * a.heads + head] = w.largest[row] + logs[i];
      if (t.max_logit != nullptr) {
        float& top = t.max_logit[row % w.group_heads];
        top = w.largest[row] > top ? w.largest[row] : top;
      }
    }
  }
}

}  // namespace

void attention_forward_task(const AttentionTask& t) {
  const AttentionArgs& a = *t.args;
  const Buffers w = make_buffers(t);
  if (a.type == DType::bf16)
    load_queries<bf16>(w, t);
  else
    load_queries<float>(w, t);
  for (int64_t i = 0; i < w.rows * w.v_padded; i += kLanes) store(w.o + i, zero());
  for (int64_t i = 0; i < w.rows * kVirtualLanes; i += kLanes) store(w.sum + i, zero());
  for (int64_t i = 0; i < w.rows; ++i) w.largest[i] = -__builtin_inff();
  const int64_t last =
      min64(w.first_position + (t.range.row1 - t.range.row0), w.keys) - 1;  // that the last row sees
  const int64_t first_key = w.window.first(w.first_position);
  PrefetchPlan prefetch(a, t.next, last / kBlock - first_key / kBlock + 1);
  prefetch.add_rows(prefetch.rows[0], a, t.next, a.q, a.type, a.q_stride, a.width);
  prefetch.add_rows(prefetch.rows[1], a, &t.range, a.o, a.o_type, a.o_stride, a.values());
  for (int64_t block = first_key / kBlock; block * kBlock <= last; ++block) {
    const int64_t key0 = block * kBlock;
    const int64_t keys = min64(kBlock, last - key0 + 1);
    const int64_t begin = max64(0, key0 - w.first_position) * w.group_heads;
    int64_t end = w.rows;  // rows whose window still reaches the block
    if (a.window > 0) end = min64(end, (w.window.end(key0 + keys - 1) - w.first_position) * w.group_heads);
    prefetch.plan_block(a, t.range, block, last / kBlock, end - begin);
    const bool narrow = a.type == DType::bf16, tile = end - begin <= kTileRows;
    if (tile && narrow)
      run_tile<bf16>(w, t, prefetch, block, begin, end - begin, keys);
    else if (tile)
      run_tile<float>(w, t, prefetch, block, begin, end - begin, keys);
    else {
      if (narrow)
        load_block<bf16>(w, t, block, keys);
      else
        load_block<float>(w, t, block, keys);
      run_block(w, prefetch, block, begin, end);
    }
  }
  finish(w, t);
}

}  // namespace ingot::INGOT_ISA
