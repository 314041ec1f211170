// The forward of attention.h for one unit: see attention_kernels.h. For each block of 64 keys, keys are
// turned and values copied once, then tiles of 6 rows go through scores, online softmax and P V while in
// registers and level 1.
#include "device/cpu/attention_kernels.h"
#include "device/cpu/attention_tile.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int64_t kBlock = kAttentionBlock;
constexpr int kBlockVecs = kBlock / kLanes;

INGOT_INLINE int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
INGOT_INLINE int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/// A unit's scratch. Rows are (query row, head of the group), the head running fastest.
struct Work {
  const AttentionArgs* args;
  const AttentionSpan* span;
  int64_t group_heads, rows, first_position, padded;
  float* q;         // [rows][padded]
  float* o;         // [rows][padded], not yet divided by the sum
  float* sum;       // [rows][16 virtual lanes]
  float* largest;   // [rows]
  float* k_turned;  // [width][64]
  float* v;         // [64][padded]
  float* s;         // [6][64]: scores, then probabilities
  float* factor;    // [6]

  int64_t position(int64_t row) const { return first_position + row / group_heads; }
};

Work make_work(const AttentionUnit& u) {
  const AttentionArgs& a = *u.args;
  Work w;
  w.args = u.args;
  w.span = u.span;
  w.group_heads = a.heads / a.kv_heads;
  w.rows = (u.row1 - u.row0) * w.group_heads;
  w.first_position = u.span->past + u.row0;
  w.padded = attention_padded(a.width);
  float* p = u.scratch;
  w.q = p, p += w.rows * w.padded;
  w.o = p, p += w.rows * w.padded;
  w.sum = p, p += w.rows * kVirtualLanes;
  w.k_turned = p, p += w.padded * kBlock;
  w.v = p, p += w.padded * kBlock;
  w.s = p, p += kTileRows * kBlock;
  w.factor = p, p += 16;
  w.largest = p;
  return w;
}

/// One row's share of online softmax: turns scores into probabilities relative to the new maximum.
template <bool kCap>
INGOT_INLINE void softmax_row(const Work& w, float* s, int vecs, Visible keys, int64_t row, float* factor) {
  const float lowest = -__builtin_inff();
  const Vec scale = set1(w.args->scale);
  Vec x[kBlockVecs];
  Vec top = set1(lowest);
#pragma GCC unroll 4
  for (int v = 0; v < vecs; ++v) {
    x[v] = load(s + v * kLanes) * scale;
    if (kCap) x[v] = vtanh(x[v] / set1(w.args->softcap)) * set1(w.args->softcap);
    x[v] = mask_keys(x[v], v * kLanes, keys, set1(lowest));
    top = max(top, x[v]);
  }
  const float before = w.largest[row];
  float now = reduce_max(top);
  now = before > now ? before : now;
  w.largest[row] = now;
  const float base = now == lowest ? 0.0f : now;  // nothing seen yet: keep inf - inf away
  const Vec shift = set1(base);
  Lanes total = lanes(0.0f);
#pragma GCC unroll 4
  for (int v = 0; v < vecs; ++v) {
    const Vec p = vexp(x[v] - shift);
    store(s + v * kLanes, p);
    total.v[v % kLaneVecs] = total.v[v % kLaneVecs] + p;
  }
  const Vec decay = vexp(set1(before - base));
  float* sum = w.sum + row * kVirtualLanes;
  for (int i = 0; i < kLaneVecs; ++i) store(sum + i * kLanes, fma(load(sum + i * kLanes), decay, total.v[i]));
  store_tail(factor, decay, 1);
}

template <class T>
void load_block(const Work& w, const AttentionUnit& u, int64_t block, int64_t keys) {
  const AttentionArgs& a = *w.args;
  const int64_t head = u.group * a.width;
  const T *k, *v;
  if (w.span->k_blocks != nullptr) {
    k = static_cast<const T*>(w.span->k_blocks[block]) + head;
    v = static_cast<const T*>(w.span->v_blocks[block]) + head;
  } else {
    const int64_t row = w.span->first_row + block * kBlock;
    k = static_cast<const T*>(a.k) + row * a.k_stride + head;
    v = static_cast<const T*>(a.v) + row * a.v_stride + head;
  }
  transpose_rows(k, a.k_stride, keys, a.width, w.k_turned);
  copy_rows(v, a.v_stride, keys, a.width, w.v, w.padded);
}

void run_block(const Work& w, int64_t block, int64_t row_begin, int64_t row_end) {
  const AttentionArgs& a = *w.args;
  const int64_t key0 = block * kBlock;
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int64_t rows = min64(kTileRows, row_end - row);
    const int64_t keys = min64(kBlock, w.position(row + rows - 1) - key0 + 1);
    const int vecs = static_cast<int>((keys + kLanes - 1) / kLanes);
    product<false>({rows, vecs, a.width, w.q + row * w.padded, w.padded, 1, w.k_turned, kBlock, w.s, kBlock,
                    false, nullptr});
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t high = w.position(row + i) - key0;
      const Visible visible{a.window > 0 ? high - a.window + 1 : 0, high};
      if (a.softcap > 0)
        softmax_row<true>(w, w.s + i * kBlock, vecs, visible, row + i, w.factor + i);
      else
        softmax_row<false>(w, w.s + i * kBlock, vecs, visible, row + i, w.factor + i);
    }
    product<false>({rows, w.padded / kLanes, keys, w.s, kBlock, 1, w.v, w.padded, w.o + row * w.padded,
                    w.padded, true, w.factor});
  }
}

template <class T>
void load_queries(const Work& w, const AttentionUnit& u) {
  const AttentionArgs& a = *w.args;
  const T* q = static_cast<const T*>(a.q) + (w.span->first_row + u.row0) * a.q_stride;
  for (int64_t r = 0; r < u.row1 - u.row0; ++r)
    copy_rows(q + r * a.q_stride + u.group * w.group_heads * a.width, a.width, w.group_heads, a.width,
              w.q + r * w.group_heads * w.padded, w.padded);
}

void finish(const Work& w, const AttentionUnit& u) {
  const AttentionArgs& a = *w.args;
  for (int64_t row = 0; row < w.rows; ++row) {
    Lanes l;
    for (int i = 0; i < kLaneVecs; ++i) l.v[i] = load(w.sum + row * kVirtualLanes + i * kLanes);
    const float sum = tree_sum(l);
    float* o = w.o + row * w.padded;
    const Vec inverse = set1(1.0f / sum);
    for (int64_t j = 0; j < w.padded; j += kLanes) store(o + j, load(o + j) * inverse);
    const int64_t token = w.span->first_row + u.row0 + row / w.group_heads;
    const int64_t head = u.group * w.group_heads + row % w.group_heads;
    const int64_t at = token * a.o_stride + head * a.width;
    if (a.o_type == DType::bf16)
      write_row(static_cast<bf16*>(a.o) + at, o, a.width);
    else
      write_row(static_cast<float*>(a.o) + at, o, a.width);
    if (a.lse != nullptr)
      store_tail(a.lse + token * a.heads + head, set1(w.largest[row]) + vlog(set1(sum)), 1);
    if (u.max_logit != nullptr) {
      float& top = u.max_logit[row % w.group_heads];
      top = w.largest[row] > top ? w.largest[row] : top;
    }
  }
}

}  // namespace

void attention_unit(const AttentionUnit& u) {
  const AttentionArgs& a = *u.args;
  const Work w = make_work(u);
  if (a.type == DType::bf16)
    load_queries<bf16>(w, u);
  else
    load_queries<float>(w, u);
  for (int64_t i = 0; i < w.rows * w.padded; i += kLanes) store(w.o + i, zero());
  for (int64_t i = 0; i < w.rows * kVirtualLanes; i += kLanes) store(w.sum + i, zero());
  for (int64_t i = 0; i < w.rows; ++i) w.largest[i] = -__builtin_inff();
  const int64_t last = w.first_position + (u.row1 - u.row0) - 1;  // position of the last row
  const int64_t first_key = a.window > 0 ? max64(0, w.first_position - a.window + 1) : 0;
  for (int64_t block = first_key / kBlock; block * kBlock <= last; ++block) {
    const int64_t key0 = block * kBlock;
    const int64_t keys = min64(kBlock, last - key0 + 1);
    if (a.type == DType::bf16)
      load_block<bf16>(w, u, block, keys);
    else
      load_block<float>(w, u, block, keys);
    const int64_t begin = max64(0, key0 - w.first_position) * w.group_heads;
    int64_t end = w.rows;  // rows whose window still reaches the block
    if (a.window > 0) end = min64(end, (key0 + keys - 1 + a.window - w.first_position) * w.group_heads);
    run_block(w, block, begin, end);
  }
  finish(w, u);
}

}  // namespace ingot::INGOT_ISA
