// Where the chains and the operands of a register tile lie, and how it walks along them: packed, in place, or in place and packed by
// the way. Included only by isa_gemm.cpp and gemm_tiles.h.
//
// An operand is begun, read and moved on once a step; what a walk does besides reading is hidden behind the multiplications.
#pragma once
#include "device/gemm/gemm_chain.h"
#include "device/gemm/gemm_tile.h"

namespace ingot::INGOT_ISA {

/// Lines of memory `step` bytes apart; after `run` of them `jump` more.
struct Lines {
  const char* from;  ///< nullptr: none
  int64_t step, run, jump;
};

/// A vector of each row of B, or of each pair of rows, and its place in a strip.
struct VectorsOfB {
  const void* from;
  int64_t ldb;
  float* to;
  int64_t width;  ///< words of a row of the strip's panel
  int64_t count;  ///< 0: none
  int64_t slow;   ///< steps for each, a power of two
};

/// Where a tile's chains come from and go to.
struct TileIo {
  const float* in;  ///< nullptr: zeros
  int64_t in_stride;
  void* out;
  int64_t out_stride;
  bool out_bf16;
  const void* bias;  ///< nullptr: none; at the tile's first column
  bool bias_bf16;
  int cols;
  const float* next;  ///< where the tile after this one starts, if it starts from C
  int64_t next_stride;
  Lines fetch;          ///< brought to the level 2 cache, a line per k step; or
  VectorsOfB pack;      ///< packed
  const float* b_rows;  ///< B where it lies, if the tile packs it
  int64_t ldb;
  const void* a_columns;  ///< A where it lies, if the tile packs it
  int64_t lda;            ///< of rows in place, words; of a_columns, elements
  int64_t a_ahead;        ///< columns in place: words from the column at work to the one that is fetched
  int64_t a_panel;        ///< words from a packed panel of A to the next
};

/// How a tile reads A: a packed panel.
struct PackedA {
  const float* at;
  PackedA(const float* a, const TileIo&) : at(a) {}
  INGOT_INLINE void begin() {}
  INGOT_INLINE const float* word(int i) const { return at + i; }
  INGOT_INLINE void next() { at += kRows; }
};
/// Rows where they lie. Words that are pairs of bf16 need not be aligned as words.
struct RowsOfA {
  const float* at;
  int64_t lda;
  RowsOfA(const float* a, const TileIo& io) : at(a), lda(io.lda) {}
  INGOT_INLINE void begin() {}
  INGOT_INLINE const float* word(int i) const { return at + i * lda; }
  INGOT_INLINE void next() { at += 1; }
};
/// Columns where they lie. Every step is another line, often of another page, which the hardware does not foresee.
struct ColumnsOfA {
  const float* at;
  int64_t lda, ahead;
  ColumnsOfA(const float* a, const TileIo& io) : at(a), lda(io.lda), ahead(io.a_ahead) {}
  INGOT_INLINE void begin() { __builtin_prefetch(at + ahead); }
  INGOT_INLINE const float* word(int i) const { return at + i; }
  INGOT_INLINE void next() { at += lda; }
};

#if defined(INGOT_ISA_avx512)
INGOT_INLINE void store_halves(float* low, float* high, Vec x) {
  _mm256_storeu_ps(low, _mm512_castps512_ps256(x.v));
  _mm256_storeu_ps(high, _mm512_extractf32x8_ps(x.v, 1));
}
#elif defined(INGOT_ISA_avx2)
INGOT_INLINE void store_halves(float* low, float* high, Vec x) {
  _mm_storeu_ps(low, _mm256_castps256_ps128(x.v));
  _mm_storeu_ps(high, _mm256_extractf128_ps(x.v, 1));
}
#endif

#if !defined(INGOT_ISA_generic)
/// Columns, which it packs for the tile below and itself: two tiles' rows are a vector, in f32 a line.
template <class T>
struct PackedColumns {
  static constexpr int64_t kAhead = 8, kFarAhead = 48;  // steps: to the level 1 and 2 cache
  const T* at;
  int64_t lda;
  float* low;
  float* high;
  PackedColumns(const float* a, const TileIo& io)
      : at(static_cast<const T*>(io.a_columns)),
        lda(io.lda),
        low(const_cast<float*>(a)),
        high(low + io.a_panel) {}
  INGOT_INLINE void begin() {
    __builtin_prefetch(at + kAhead * lda);
    __builtin_prefetch(at + kFarAhead * lda, 0, 2);
    store_halves(low, high, load(at));
  }
  INGOT_INLINE const float* word(int i) const {
    if constexpr (std::is_same_v<T, float>) return at + i;  // which need not wait for what was stored
    return low + i;
  }
  INGOT_INLINE void next() { at += lda, low += kRows, high += kRows; }
};
/// The same for pairs of bf16.
struct PackedPairs : PackedColumns<bf16> {
  using PackedColumns<bf16>::PackedColumns;
  INGOT_INLINE void begin() {
    __builtin_prefetch(at + 2 * kAhead * lda);
    __builtin_prefetch(at + (2 * kAhead + 1) * lda);
    __builtin_prefetch(at + 2 * kFarAhead * lda, 0, 2);
    __builtin_prefetch(at + (2 * kFarAhead + 1) * lda, 0, 2);
    store_halves(low, high, join_rows(at, at + lda, kLanes));
  }
  INGOT_INLINE void next() { at += 2 * lda, low += kRows, high += kRows; }
};
#endif

/// How a tile reads B: a panel of the strip, W vectors wide, of which it may take fewer.
template <int W>
struct StripOfB {
  const float* at;
  StripOfB(const float* b, const TileIo&) : at(b) {}
  INGOT_INLINE Vec vector(int v) const { return load(at + v * kLanes); }
  INGOT_INLINE void next() { at += W * kLanes; }
};
/// Rows where they lie, which it leaves in the strip for the tiles below: a pass over B less.
template <int NV>
struct RowsOfB {
  static constexpr int64_t kAhead = 24;
  const float* at;
  int64_t ldb;
  float* strip;
  RowsOfB(const float* b, const TileIo& io) : at(io.b_rows), ldb(io.ldb), strip(const_cast<float*>(b)) {}
  INGOT_INLINE Vec vector(int v) {
    __builtin_prefetch(at + kAhead * ldb + v * kLanes);
    const Vec x = load(at + v * kLanes);
    store(strip + v * kLanes, x);
    return x;
  }
  INGOT_INLINE void next() { at += ldb, strip += NV * kLanes; }
};

/// What a tile does besides multiplying, once a step: it fetches lines,
struct Fetching {
  const char* line;
  int64_t step, run, jump, left;
  explicit Fetching(const TileIo& io)
      : line(io.fetch.from), step(io.fetch.step), run(io.fetch.run), jump(io.fetch.jump), left(run) {}
  INGOT_INLINE void next() {
    __builtin_prefetch(line, 0, 2);
    line += step;
    if (--left == 0) line += jump, left = run;
  }
};
/// or packs a part of the strip of B that follows. Beyond its vectors it stores the last again.
template <class T, int kRowsOfStep>
struct PackingB {
  static constexpr int64_t kAhead = 24;  // vectors
  const T* at;
  int64_t ldb;
  float* to;
  int64_t width, left, mask, steps = 0;
  explicit PackingB(const TileIo& io)
      : at(static_cast<const T*>(io.pack.from)),
        ldb(io.pack.ldb),
        to(io.pack.to),
        width(io.pack.width),
        left(io.pack.count),
        mask(io.pack.slow - 1) {}
  INGOT_INLINE void next() {
    if ((steps++ & mask) != 0) return;
    for (int r = 0; r < kRowsOfStep; ++r) __builtin_prefetch(at + (kAhead * kRowsOfStep + r) * ldb);
    if constexpr (kRowsOfStep == 2)
      store(to, join_rows(at, at + ldb, kLanes));
    else
      store(to, load(at));
    if (--left > 0) at += kRowsOfStep * ldb, to += width;
  }
};

}  // namespace ingot::INGOT_ISA
