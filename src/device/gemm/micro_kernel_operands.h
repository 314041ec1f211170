// What the micro-kernel reads, writes and does besides multiplying, as template parameters: where A comes
// from (packed, in place, or in place and packed on the way), where B comes from, and the side task of each
// k-step (prefetch, or packing the next B). Included only by isa_gemm.cpp and micro_kernel.h.
//
// For A, begin(), word(i) and next() are called once a k-step; for B, vector(v) and next(). Stores and
// prefetches in them are hidden behind the multiplications.
#pragma once
#include "device/gemm/gemm_k_step.h"
#include "device/gemm/gemm_shape.h"

namespace ingot::INGOT_ISA {

/// Cache lines to prefetch: `step` bytes apart; after `run` of them, `jump` bytes more.
struct PrefetchLines {
  const char* from;  ///< nullptr: none
  int64_t step, run, jump;
};

/// Part of the next packed panel of B: one vector of `count` rows of B (of pairs of rows), stored `width`
/// words apart.
struct NextBVectors {
  const void* from;
  int64_t ldb;
  float* to;
  int64_t width;
  int64_t count;           ///< 0: none
  int64_t steps_per_line;  ///< k-steps for each row, a power of two
};

/// The arguments of a micro-kernel besides kc and the packed operands.
struct MicroTile {
  const float* in;  ///< the sums to start from; nullptr: zeros
  int64_t in_stride;
  void* out;
  int64_t out_stride;
  bool out_bf16;
  const void* bias;  ///< at the tile's first column; nullptr: none
  bool bias_bf16;
  int cols;
  const float* next;  ///< the sums of the next tile, to prefetch; nullptr: none
  int64_t next_stride;
  PrefetchLines fetch;    ///< Prefetching: into the level 2 cache, a line each k-step
  NextBVectors pack;      ///< PackingNextB
  const float* b_rows;    ///< PackingRowsOfB: B in place
  int64_t ldb;            ///< of b_rows
  const void* a_columns;  ///< PackingColumnsOfA: A in place
  int64_t lda;            ///< of A in place: words between rows; elements between columns
  int64_t a_distance;     ///< ColumnsOfA: words from the column in use to the one to prefetch
  int64_t a_panel;        ///< PackingColumnsOfA: words from one packed micro-panel of A to the next
};

// ---- A

/// A packed micro-panel.
struct PackedA {
  const float* at;
  PackedA(const float* a, const MicroTile&) : at(a) {}
  INGOT_INLINE void begin() {}
  INGOT_INLINE const float* word(int i) const { return at + i; }
  INGOT_INLINE void next() { at += kMr; }
};
/// Rows in place (k contiguous). Words that are pairs of bf16 need not be aligned as words.
struct RowsOfA {
  const float* at;
  int64_t lda;
  RowsOfA(const float* a, const MicroTile& io) : at(a), lda(io.lda) {}
  INGOT_INLINE void begin() {}
  INGOT_INLINE const float* word(int i) const { return at + i * lda; }
  INGOT_INLINE void next() { at += 1; }
};
/// Columns in place. Each k-step reads another cache line, often of another page, which the hardware does not
/// prefetch.
struct ColumnsOfA {
  const float* at;
  int64_t lda, distance;
  ColumnsOfA(const float* a, const MicroTile& io) : at(a), lda(io.lda), distance(io.a_distance) {}
  INGOT_INLINE void begin() { __builtin_prefetch(at + distance); }
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
/// Columns in place, which it packs for itself and the tile below: the rows of two tiles are one vector.
template <class T>
struct PackingColumnsOfA {
  static constexpr int64_t kDistance = 8, kFarDistance = 48;  // k-steps to the level 1 and 2 cache
  const T* at;
  int64_t lda;
  float* low;
  float* high;
  PackingColumnsOfA(const float* a, const MicroTile& io)
      : at(static_cast<const T*>(io.a_columns)),
        lda(io.lda),
        low(const_cast<float*>(a)),
        high(low + io.a_panel) {}
  INGOT_INLINE void begin() {
    __builtin_prefetch(at + kDistance * lda);
    __builtin_prefetch(at + kFarDistance * lda, 0, 2);
    store_halves(low, high, load(at));
  }
  INGOT_INLINE const float* word(int i) const {
    if constexpr (std::is_same_v<T, float>)
      return at + i;  // not the packed copy: it would wait for the store
    return low + i;
  }
  INGOT_INLINE void next() { at += lda, low += kMr, high += kMr; }
};
/// Columns of pairs of bf16.
struct PackingColumnPairsOfA : PackingColumnsOfA<bf16> {
  using PackingColumnsOfA<bf16>::PackingColumnsOfA;
  INGOT_INLINE void begin() {
    __builtin_prefetch(at + 2 * kDistance * lda);
    __builtin_prefetch(at + (2 * kDistance + 1) * lda);
    __builtin_prefetch(at + 2 * kFarDistance * lda, 0, 2);
    __builtin_prefetch(at + (2 * kFarDistance + 1) * lda, 0, 2);
    store_halves(low, high, join_rows(at, at + lda, kLanes));
  }
  INGOT_INLINE void next() { at += 2 * lda, low += kMr, high += kMr; }
};
#endif

// ---- B

/// A packed micro-panel of W vectors, of which the micro-kernel may read fewer.
template <int W>
struct PackedB {
  const float* at;
  PackedB(const float* b, const MicroTile&) : at(b) {}
  INGOT_INLINE Vec vector(int v) const { return load(at + v * kLanes); }
  INGOT_INLINE void next() { at += W * kLanes; }
};
/// Rows in place, which it packs for the tiles below.
template <int NV>
struct PackingRowsOfB {
  static constexpr int64_t kDistance = 24;
  const float* at;
  int64_t ldb;
  float* packed;
  PackingRowsOfB(const float* b, const MicroTile& io)
      : at(io.b_rows), ldb(io.ldb), packed(const_cast<float*>(b)) {}
  INGOT_INLINE Vec vector(int v) {
    __builtin_prefetch(at + kDistance * ldb + v * kLanes);
    const Vec x = load(at + v * kLanes);
    store(packed + v * kLanes, x);
    return x;
  }
  INGOT_INLINE void next() { at += ldb, packed += NV * kLanes; }
};

// ---- the side task of a k-step

/// Prefetches a cache line.
struct Prefetching {
  const char* line;
  int64_t step, run, jump, left;
  explicit Prefetching(const MicroTile& io)
      : line(io.fetch.from), step(io.fetch.step), run(io.fetch.run), jump(io.fetch.jump), left(run) {}
  INGOT_INLINE void next() {
    __builtin_prefetch(line, 0, 2);
    line += step;
    if (--left == 0) line += jump, left = run;
  }
};
/// Packs a vector of the next packed panel of B; after the last one it stores that again.
template <class T, int kRowsOfStep>
struct PackingNextB {
  static constexpr int64_t kDistance = 24;  // rows or pairs of rows
  const T* at;
  int64_t ldb;
  float* to;
  int64_t width, left, mask, steps = 0;
  explicit PackingNextB(const MicroTile& io)
      : at(static_cast<const T*>(io.pack.from)),
        ldb(io.pack.ldb),
        to(io.pack.to),
        width(io.pack.width),
        left(io.pack.count),
        mask(io.pack.steps_per_line - 1) {}
  INGOT_INLINE void next() {
    if ((steps++ & mask) != 0) return;
    for (int r = 0; r < kRowsOfStep; ++r) __builtin_prefetch(at + (kDistance * kRowsOfStep + r) * ldb);
    if constexpr (kRowsOfStep == 2)
      store(to, join_rows(at, at + ldb, kLanes));
    else
      store(to, load(at));
    if (--left > 0) at += kRowsOfStep * ldb, to += width;
  }
};

}  // namespace ingot::INGOT_ISA
