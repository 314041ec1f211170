// The backward of attention.h for one span and key-value head: see attention_kernels.h. For each block of 64
// keys, ascending: P is recomputed from q, k and lse; dV += Pᵀ dO; dS = P * (dO Vᵀ - delta); dK += dSᵀ Q; dQ
// += dS K.
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

/// Rows are (query row, head of the group), the head running fastest.
struct Work {
  const AttentionArgs* args;
  AttentionWindow window;
  int64_t group_heads, rows, past, keys, padded, v_padded;
  float *q, *d_q;              // [rows][padded]
  float* d_o;                  // [rows][v_padded]
  float *delta, *lse;          // [rows]
  float *k_turned, *v_turned;  // [width][64]
  float *k, *d_k;              // [64][padded]
  float* d_v;                  // [64][v_padded]
  float *p, *d_s;              // [kAttentionBackRows][64]
};

Work make_work(const AttentionBackwardUnit& u) {
  const AttentionArgs& a = u.args->forward;
  Work w;
  w.args = &a;
  w.window = a.window_of(*u.span);
  w.group_heads = a.heads / a.kv_heads;
  w.rows = u.span->rows * w.group_heads;
  w.past = u.span->past;
  w.keys = u.span->key_count();
  w.padded = attention_padded(a.width);
  w.v_padded = attention_padded(a.values());
  float* p = u.scratch;
  const int64_t rows_size = w.rows * w.padded, block_size = kBlock * w.padded, v_block_size = kBlock * w.v_padded;
  w.q = p, p += rows_size;
  w.d_o = p, p += w.rows * w.v_padded;
  w.d_q = p, p += rows_size;
  w.k_turned = p, p += block_size;
  w.v_turned = p, p += v_block_size;
  w.k = p, p += block_size;
  w.d_k = p, p += block_size;
  w.d_v = p, p += v_block_size;
  w.p = p, p += kAttentionBackRows * kBlock;
  w.d_s = p, p += kAttentionBackRows * kBlock;
  w.delta = p, p += w.rows;
  w.lse = p;
  return w;
}

/// Loads the queries and output gradients, and delta = rowsum(dO * O).
template <class T, class O>
void load_rows(const Work& w, const AttentionBackwardUnit& u) {
  const AttentionArgs& a = *w.args;
  const int64_t head0 = u.group * w.group_heads;
  for (int64_t r = 0; r < u.span->rows; ++r) {
    const int64_t token = u.span->first_row + r;
    const int64_t row = r * w.group_heads;
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
void load_block(const Work& w, const AttentionBackwardUnit& u, int64_t key0, int64_t keys) {
  const AttentionArgs& a = *w.args;
  const int64_t token = u.span->first_key_row() + key0;
  const T* k = static_cast<const T*>(a.k) + token * a.k_stride + u.group * a.width;
  const T* v = static_cast<const T*>(a.v) + token * a.v_stride + u.group * a.values();
  transpose_rows(k, a.k_stride, keys, a.width, w.k_turned);
  transpose_rows(v, a.v_stride, keys, a.values(), w.v_turned);
  copy_rows(k, a.k_stride, keys, a.width, w.k, w.padded);
}

/// p: scores in, probabilities out. d_s: dO Vᵀ in, gradients of the unscaled scores out. Beyond vecs: zeros.
template <bool kCap>
INGOT_INLINE void gradient_row(const Work& w, float* p, float* d_s, int vecs, Visible keys, float lse,
                               float delta) {
  const Vec scale = set1(w.args->scale);
  for (int v = 0; v < vecs; ++v) {
    Vec x = load(p + v * kLanes) * scale;
    Vec slope = scale;
    if (kCap) {
      const Vec t = vtanh(x / set1(w.args->softcap));
      x = t * set1(w.args->softcap);
      slope = slope * (set1(1.0f) - t * t);
    }
    const Vec prob = mask_keys(vexp(x - set1(lse)), v * kLanes, keys, zero());
    store(p + v * kLanes, prob);
    store(d_s + v * kLanes, prob * (load(d_s + v * kLanes) - set1(delta)) * slope);
  }
  for (int v = vecs; v < kBlockVecs; ++v) {
    store(p + v * kLanes, zero());
    store(d_s + v * kLanes, zero());
  }
}

/// Fills p and d_s for rows row0 .. row0 + count, and adds their share of dQ.
void query_tiles(const Work& w, int64_t key0, int64_t row0, int64_t count) {
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
    product<false>({rows, vecs, a.values(), w.d_o + row * w.v_padded, w.v_padded, 1, w.v_turned, kBlock, d_s, kBlock,
                    false, nullptr});
    for (int64_t j = 0; j < rows; ++j) {
      const int64_t position = w.past + (row + j) / w.group_heads;
      const Visible visible{w.window.first(position) - key0, min64(position, w.keys - 1) - key0};
      float* p_row = p + j * kBlock;
      float* d_s_row = d_s + j * kBlock;
      if (a.softcap > 0)
        gradient_row<true>(w, p_row, d_s_row, vecs, visible, w.lse[row + j], w.delta[row + j]);
      else
        gradient_row<false>(w, p_row, d_s_row, vecs, visible, w.lse[row + j], w.delta[row + j]);
    }
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
                   w.d_o + begin * w.v_padded, w.v_padded, w.d_v + key * w.v_padded, w.v_padded, !first, nullptr});
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
    const int64_t token = u.span->first_row + row / w.group_heads;
    const int64_t head = u.group * w.group_heads + row % w.group_heads;
    write_row(static_cast<T*>(u.args->d_q) + token * u.args->d_q_stride + head * a.width,
              w.d_q + row * w.padded, a.width);
  }
}

}  // namespace

void attention_backward_unit(const AttentionBackwardUnit& u) {
  const AttentionArgs& a = u.args->forward;
  const Work w = make_work(u);
  const bool narrow = a.type == DType::bf16, narrow_o = a.o_type == DType::bf16;
  if (narrow && narrow_o)
    load_rows<bf16, bf16>(w, u);
  else if (narrow)
    load_rows<bf16, float>(w, u);
  else if (narrow_o)
    load_rows<float, bf16>(w, u);
  else
    load_rows<float, float>(w, u);
  for (int64_t i = 0; i < w.rows * w.padded; i += kLanes) store(w.d_q + i, zero());
  for (int64_t key0 = 0; key0 < w.keys; key0 += kBlock) {
    const int64_t keys = min64(kBlock, w.keys - key0);
    if (narrow)
      load_block<bf16>(w, u, key0, keys);
    else
      load_block<float>(w, u, key0, keys);
    const int64_t begin = max64(0, key0 - w.past) * w.group_heads;
    int64_t end = w.rows;
    if (a.window > 0) end = min64(end, (w.window.end(key0 + keys - 1) - w.past) * w.group_heads);
    if (begin >= end) {  // nobody sees the block
      for (int64_t i = 0; i < kBlock * w.padded; i += kLanes) store(w.d_k + i, zero());
      for (int64_t i = 0; i < kBlock * w.v_padded; i += kLanes) store(w.d_v + i, zero());
    }
    for (int64_t row = begin; row < end; row += kAttentionBackRows) {
      const int64_t count = min64(kAttentionBackRows, end - row);
      query_tiles(w, key0, row, count);
      key_tiles(w, key0, keys, row, count, row == begin);
    }
    if (u.args->d_type == DType::bf16)
      write_block<bf16>(w, u, key0, keys);
    else
      write_block<float>(w, u, key0, keys);
  }
  if (u.args->d_type == DType::bf16)
    write_queries<bf16>(w, u);
  else
    write_queries<float>(w, u);
}

}  // namespace ingot::INGOT_ISA
