// Where the keys and values of a block are, and prefetching, while tiles run, what the next block and the
// next range of rows read: rows are the stride of a packed projection apart, a pattern that the hardware does
// not prefetch.
#pragma once
#include "device/attention/attention_kernels.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

/// First key or value of a block, of the range's key-value head.
INGOT_INLINE const void* block_of(const AttentionArgs& a, const AttentionRange& s, int64_t block,
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

/// Rows to prefetch into the level 2 cache, a few at a time.
struct PrefetchRows {
  const char* at = nullptr;
  int64_t stride = 0, bytes = 0, rows = 0;

  INGOT_INLINE void advance(int64_t count) {
    for (; count > 0 && rows > 0; --count, --rows, at += stride)
      for (int64_t j = 0; j < bytes; j += 64) __builtin_prefetch(at + j, 0, 2);
  }
};
/// `rows` rows of `width` elements, the first one at element `first` of x.
INGOT_INLINE PrefetchRows prefetch_rows_of(const void* x, DType type, int64_t first, int64_t stride,
                                           int64_t rows, int64_t width) {
  const int64_t size = type == DType::bf16 ? 2 : 4;
  return {static_cast<const char*>(x) + first * size, stride * size, width * size, rows};
}

/// What is needed next: keys and values of the next block, or of the next range's first, and their gradients;
/// and, spread over the blocks, rows that the next range reads or that this one writes at its end.
struct PrefetchPlan {
  const AttentionRange* next = nullptr;  ///< nullptr: unknown, or there is none
  PrefetchRows k, v, d_k, d_v, rows[4];
  int64_t block_rows_per_call = 0, rows_per_call = 0;  ///< rows to prefetch per call of advance()

  /// `next` comes after so many blocks. At least half of the (row, head) pairs see keys of each of them.
  PrefetchPlan(const AttentionArgs& a, const AttentionRange* next, int64_t blocks)
      : next(next), rows_per_call(2 * kAttentionTile / max64(1, blocks * (a.heads / a.kv_heads)) + 1) {}

  /// Of x, the rows of s and its group's heads of `width`.
  void add_rows(PrefetchRows& r, const AttentionArgs& a, const AttentionRange* s, const void* x, DType type,
                int64_t stride, int64_t width) const {
    if (s == nullptr) return;
    const int64_t heads = a.heads / a.kv_heads;
    r = prefetch_rows_of(x, type, (s->span->first_row + s->row0) * stride + s->group * heads * width, stride,
                         s->row1 - s->row0, heads * width);
  }
  /// Called before `pairs` (row, head) pairs run against a block of `range`, whose last block is `last`.
  void plan_block(const AttentionArgs& a, const AttentionRange& range, int64_t block, int64_t last,
                  int64_t pairs) {
    const AttentionRange* s = block < last ? &range : next;
    k.rows = v.rows = 0;
    if (s == nullptr) return;
    if (s == next) block = a.window_of(*s->span).first(s->span->past + s->row0) / kAttentionBlock - 1;
    const int64_t key0 = (block + 1) * kAttentionBlock;
    const int64_t keys = min64(kAttentionBlock, min64(s->span->past + s->row1, s->span->key_count()) - key0);
    if (keys <= 0) return;
    if (a.turned_keys && s->span->k_blocks != nullptr)
      k = prefetch_rows_of(block_of(a, *s, block + 1, false), a.type, 0, kAttentionBlock, a.width, keys);
    else
      k = prefetch_rows_of(block_of(a, *s, block + 1, false), a.type, 0, a.k_stride, keys, a.width);
    v = prefetch_rows_of(block_of(a, *s, block + 1, true), a.type, 0, a.v_stride, keys, a.values());
    block_rows_per_call = kAttentionBlock * kAttentionTile / max64(1, pairs) + 1;
  }
  /// So many calls of advance() prefetch the next block.
  void spread(int64_t calls) { block_rows_per_call = (max64(k.rows, v.rows) + calls - 1) / calls; }
  INGOT_INLINE void advance() {
    k.advance(block_rows_per_call);
    v.advance(block_rows_per_call);
    d_k.advance(block_rows_per_call);
    d_v.advance(block_rows_per_call);
    for (PrefetchRows& r : rows) r.advance(rows_per_call);
  }
};

}  // namespace ingot::INGOT_ISA
