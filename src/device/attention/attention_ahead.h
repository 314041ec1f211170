// Where the keys and values of a block lie, and fetching into level 2, while tiles run, what the next block
// and the next share of the work read: rows lie a packed projection apart, a pattern that the processor does
// not foresee.
#pragma once
#include "device/attention/attention_kernels.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

INGOT_INLINE int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
INGOT_INLINE int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/// Where a block's keys or values of a key-value head begin.
INGOT_INLINE const void* block_of(const AttentionArgs& a, const AttentionShare& s, int64_t block,
                                  bool values) {
  const int64_t row = s.span->first_key_row() + block * kAttentionBlock;
  const void* const* pages = values ? s.span->v_blocks : s.span->k_blocks;
  const int64_t adjacent = values ? a.values() : a.width, apart = pages == nullptr ? 0
                                                                  : values         ? a.v_head
                                                                                   : a.k_head;
  const int64_t at = s.group * (apart > 0 ? apart : adjacent) +
                     (pages != nullptr ? 0 : row * (values ? a.v_stride : a.k_stride));
  const void* x = pages != nullptr ? pages[block] : values ? a.v : a.k;
  return static_cast<const char*>(x) + at * (a.type == DType::bf16 ? 2 : 4);
}

/// Rows to fetch a few at a time. Only a hint: it reads nothing.
struct Ahead {
  const char* at = nullptr;
  int64_t stride = 0, bytes = 0, rows = 0;

  INGOT_INLINE void fetch(int64_t count) {
    for (; count > 0 && rows > 0; --count, --rows, at += stride)
      for (int64_t j = 0; j < bytes; j += 64) __builtin_prefetch(at + j, 0, 2);
  }
};
/// `rows` rows of `width` elements, the first one at element `first` of x.
INGOT_INLINE Ahead ahead_of(const void* x, DType type, int64_t first, int64_t stride, int64_t rows,
                            int64_t width) {
  const int64_t size = type == DType::bf16 ? 2 : 4;
  return {static_cast<const char*>(x) + first * size, stride * size, width * size, rows};
}

/// What is needed next: keys and values of the block behind this one, or of the next share's first, and their
/// gradients' places; and, block by block, rows that the next share reads or this one writes at its end.
struct Coming {
  const AttentionShare* next = nullptr;  ///< nullptr: unknown, or there is none
  Ahead k, v, d_k, d_v, rows[4];
  int64_t block_share = 0, row_share = 0;  ///< rows to fetch per tile

  /// `next` comes after so many blocks. Half of the (row, head) pairs meet each of them, or more.
  Coming(const AttentionArgs& a, const AttentionShare* next, int64_t blocks)
      : next(next), row_share(2 * kAttentionTile / max64(1, blocks * (a.heads / a.kv_heads)) + 1) {}

  /// The part of x that belongs to s: its rows, and its group's heads of `width`.
  void want(Ahead& r, const AttentionArgs& a, const AttentionShare* s, const void* x, DType type,
            int64_t stride, int64_t width) const {
    if (s == nullptr) return;
    const int64_t heads = a.heads / a.kv_heads;
    r = ahead_of(x, type, (s->span->first_row + s->row0) * stride + s->group * heads * width, stride,
                 s->row1 - s->row0, heads * width);
  }
  /// Before `pairs` (row, head) pairs meet a block of `share`, whose last one is `last`.
  void before_block(const AttentionArgs& a, const AttentionShare& share, int64_t block, int64_t last,
                    int64_t pairs) {
    const AttentionShare* s = block < last ? &share : next;
    k.rows = v.rows = 0;
    if (s == nullptr) return;
    if (s == next) block = a.window_of(*s->span).first(s->span->past + s->row0) / kAttentionBlock - 1;
    const int64_t key0 = (block + 1) * kAttentionBlock;
    const int64_t keys = min64(kAttentionBlock, min64(s->span->past + s->row1, s->span->key_count()) - key0);
    if (keys <= 0) return;
    k = ahead_of(block_of(a, *s, block + 1, false), a.type, 0, a.k_stride, keys, a.width);
    v = ahead_of(block_of(a, *s, block + 1, true), a.type, 0, a.v_stride, keys, a.values());
    block_share = kAttentionBlock * kAttentionTile / max64(1, pairs) + 1;
  }
  /// So many calls of fetch() shall fetch the next block.
  void share_out(int64_t calls) { block_share = (max64(k.rows, v.rows) + calls - 1) / calls; }
  INGOT_INLINE void fetch() {
    k.fetch(block_share);
    v.fetch(block_share);
    d_k.fetch(block_share);
    d_v.fetch(block_share);
    for (Ahead& r : rows) r.fetch(row_share);
  }
};

}  // namespace ingot::INGOT_ISA
