// Panels of A and B for the register tile of isa_gemm.cpp, for one instruction set. See gemm_kernels.h for
// their layout.
//
// Operands come in three forms: f32, bf16 widened to f32 (where the other operand is f32), and pairs of bf16. B may be f32
// that counts as its rounding to bf16 (DType::f32_as_bf16) in either of the latter.
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_tile.h"
#include "device/simd/simd.h"
#include "device/simd/transpose.h"

namespace ingot::INGOT_ISA {

/// Two neighbours along k as they lie in memory; moved as one word.
struct Pair {
  bf16 low, high;
};

/// The same of f32 that counts as bf16; they become one word.
struct RoundedPair {
  RoundedFloat low, high;
};

INGOT_INLINE Vec load(const Pair* p) {
  float words[kLanes];
  std::memcpy(words, p, sizeof(words));
  return load(words);
}
INGOT_INLINE Vec load_tail(const Pair* p, int n) {
  float words[kLanes] = {};
  std::memcpy(words, p, static_cast<size_t>(n) * sizeof(Pair));
  return load(words);
}
INGOT_INLINE Vec load(const RoundedPair* p) {
  const auto* x = reinterpret_cast<const RoundedFloat*>(p);
  const Vec first = load(x), second = load(x + kLanes);  // what counts is in the upper halves
#if defined(INGOT_ISA_avx512)
  const __m512i upper = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31,
                                         29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return as_float({_mm512_permutex2var_epi16(as_int(first).v, upper, as_int(second).v)});
#elif defined(INGOT_ISA_avx2)
  const __m256i low = _mm256_srli_epi32(as_int(first).v, 16), high = _mm256_srli_epi32(as_int(second).v, 16);
  return as_float({_mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8)});
#else
  bf16 halves[2 * kLanes];
  store(halves, first);
  store(halves + kLanes, second);
  return load(reinterpret_cast<const Pair*>(halves));
#endif
}
INGOT_INLINE Vec load_tail(const RoundedPair* p, int n) {
  RoundedPair buffer[kLanes] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(RoundedPair));
  return load(buffer);
}
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
INGOT_INLINE __m256 load8(const Pair* p) {
  __m256 words;
  std::memcpy(&words, p, sizeof(words));
  return words;
}
#endif

namespace {

float word(float x) {
  return x;
}
float word(bf16 x) {
  return to_float(x);
}
float word(Pair x) {
  return std::bit_cast<float>(x);
}

/// The pointer `elements` of the operand's own type further on.
template <class T>
const T* ahead(const T* p, int64_t elements) {
  return p + elements;
}
template <>
const Pair* ahead(const Pair* p, int64_t elements) {
  return reinterpret_cast<const Pair*>(reinterpret_cast<const bf16*>(p) + elements);
}

template <>
const RoundedPair* ahead(const RoundedPair* p, int64_t elements) {
  return reinterpret_cast<const RoundedPair*>(reinterpret_cast<const RoundedFloat*>(p) + elements);
}

bf16 half(bf16 x) {
  return x;
}
bf16 half(RoundedFloat x) {
  return to_bf16(x.value);
}
template <class T>
float join(const T* even, const T* odd) {
  return std::bit_cast<float>(static_cast<uint32_t>(half(*even).bits) |
                              (odd == nullptr ? 0 : static_cast<uint32_t>(half(*odd).bits) << 16));
}

// ---- A

/// Rows (<= kRows) of A stored [m, k] -> out[kc][kRows]
template <class T>
void pack_a_rows(const T* a, int64_t lda, int64_t rows, int64_t kc, float* out) {
  int64_t k = 0;
#if defined(INGOT_ISA_avx512)
  if (rows == kRows)
    for (; k + 8 <= kc; k += 8) {
      __m256 r[8];
      for (int i = 0; i < 8; ++i) r[i] = load8(ahead(a, i * lda) + k);
      transpose8(r);
      for (int i = 0; i < 8; ++i) _mm256_storeu_ps(out + (k + i) * 8, r[i]);
    }
#elif defined(INGOT_ISA_avx2)
  if (rows == kRows)
    for (; k + 8 <= kc; k += 8) {
      __m256 r[8];
      for (int i = 0; i < 4; ++i) r[i] = load8(ahead(a, i * lda) + k);
      for (int i = 4; i < 8; ++i) r[i] = r[0];
      transpose8(r);
      for (int i = 0; i < 8; ++i) _mm_storeu_ps(out + (k + i) * 4, _mm256_castps256_ps128(r[i]));
    }
#endif
  for (; k < kc; ++k)
    for (int i = 0; i < kRows; ++i) out[k * kRows + i] = i < rows ? word(ahead(a, i * lda)[k]) : 0.0f;
}

/// The same for pairs, of which only `whole` have both halves.
void pack_a_pairs(const bf16* a, int64_t lda, int64_t rows, int64_t whole, int64_t kc, float* out) {
  pack_a_rows(reinterpret_cast<const Pair*>(a), lda, rows, whole, out);
  for (int64_t k = whole; k < kc; ++k)
    for (int i = 0; i < kRows; ++i)
      out[k * kRows + i] = i < rows ? join<bf16>(a + i * lda + 2 * k, nullptr) : 0.0f;
}

/// A stored [k, m]: kRows neighbours per k are contiguous
template <class T>
void pack_a_columns(const T* a, int64_t lda, int64_t rows, int64_t kc, float* out) {
  for (int64_t k = 0; k < kc; ++k, a += lda, out += kRows) {
#if defined(INGOT_ISA_avx512)
    if (rows == kRows) {
      _mm256_storeu_ps(out, load8(a));
      continue;
    }
#endif
    for (int i = 0; i < kRows; ++i) out[i] = i < rows ? to_float(a[i]) : 0.0f;
  }
}

void pack_a_column_pairs(const bf16* a, int64_t lda, int64_t rows, int64_t whole, int64_t kc, float* out) {
  for (int64_t k = 0; k < kc; ++k, a += 2 * lda, out += kRows) {
    const bf16* odd = k < whole ? a + lda : nullptr;
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
    if (rows == kRows) {
      store_tail(out, join_rows(a, odd, kRows), kRows);
      continue;
    }
#endif
    for (int i = 0; i < kRows; ++i) out[i] = i < rows ? join(a + i, odd == nullptr ? odd : odd + i) : 0.0f;
  }
}

/// A stored [m, k].
template <class T>
void pack_a_by_rows(const GemmPackA& p) {
  const T* a = static_cast<const T*>(p.a);
  for (int64_t i = 0; i < p.rows; i += kRows, a += kRows * p.lda) {
    const int64_t rows = min64(kRows, p.rows - i);
    if constexpr (std::is_same_v<T, bf16>) {
      if (p.pairs) {
        pack_a_pairs(a + 2 * p.k, p.lda, rows, min64(p.kc, p.depth / 2 - p.k), p.kc, p.out + i * p.kc);
        continue;
      }
    }
    pack_a_rows(a + p.k, p.lda, rows, p.kc, p.out + i * p.kc);
  }
}

/// A stored [k, m]. Few steps at a time: neighbouring panels share lines, and rows 4 KiB apart share a cache set.
template <class T>
void pack_a_by_columns(const GemmPackA& p) {
  constexpr int64_t kSteps = 4;
  const T* a = static_cast<const T*>(p.a);
  for (int64_t q = 0; q < p.kc; q += kSteps)
    for (int64_t i = 0; i < p.rows; i += kRows) {
      const int64_t rows = min64(kRows, p.rows - i), steps = min64(kSteps, p.kc - q), k = p.k + q;
      float* out = p.out + i * p.kc + q * kRows;
      if constexpr (std::is_same_v<T, bf16>) {
        if (p.pairs) {
          pack_a_column_pairs(a + 2 * k * p.lda + i, p.lda, rows, p.depth / 2 - k, steps, out);
          continue;
        }
      }
      pack_a_columns(a + k * p.lda + i, p.lda, rows, steps, out);
    }
}

template <class T>
void pack_a(const GemmPackA& p) {
  if (p.transposed)
    pack_a_by_columns<T>(p);
  else
    pack_a_by_rows<T>(p);
}

// ---- B

/// B stored [k, n]: rows of `cols` contiguous elements; only widening and zero padding
template <class T>
void pack_b_rows(const T* b, int64_t ldb, int64_t cols, int64_t kc, float* out) {
  const int64_t width = width_of(cols);
  const int tail = static_cast<int>(cols % kLanes);
  for (int64_t k = 0; k < kc; ++k, b += ldb, out += width) {
    int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes) store(out + j, load(b + j));
    if (tail != 0) store(out + j, load_tail(b + j, tail));
  }
}

template <class T>
void pack_b_row_pairs(const T* b, int64_t ldb, int64_t cols, int64_t whole, int64_t kc, float* out) {
  const int64_t width = width_of(cols);
  const int tail = static_cast<int>(cols % kLanes);
  for (int64_t k = 0; k < kc; ++k, b += 2 * ldb, out += width) {
    const T* odd = k < whole ? b + ldb : nullptr;
    int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes)
      store(out + j, join_rows(b + j, odd == nullptr ? odd : odd + j, kLanes));
    if (tail != 0) store(out + j, join_rows(b + j, odd == nullptr ? odd : odd + j, tail));
  }
}

/// B stored [n, k]: square blocks turned in registers
template <class T>
void pack_b_columns(const T* b, int64_t ldb, int64_t cols, int64_t kc, float* out) {
  const int64_t width = width_of(cols);
  constexpr int64_t kLine = 64 / sizeof(T),
                    kAhead = 4 * kLine;  // too many streams for the hardware's prefetcher
  for (int64_t k = 0; k < kc; k += kLanes) {
    const int depth = static_cast<int>(min64(kLanes, kc - k));
    for (int64_t j = 0; j < cols; j += kLanes) {
      const int count = static_cast<int>(min64(kLanes, cols - j));
      Vec r[kLanes];
      if (count == kLanes && depth == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          const T* line = ahead(b, (j + i) * ldb) + k;
          for (int64_t q = 0; q < kLanes; q += kLine) __builtin_prefetch(line + kAhead + q);
          r[i] = load(line);
        }
        transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(out + (k + i) * width + j, r[i]);
      } else {
        for (int i = 0; i < kLanes; ++i)
          r[i] = i < count ? load_tail(ahead(b, (j + i) * ldb) + k, depth) : zero();
        transpose(r);
        for (int i = 0; i < depth; ++i) store(out + (k + i) * width + j, r[i]);
      }
    }
  }
}

template <class T>
void pack_b_column_pairs(const T* b, int64_t ldb, int64_t cols, int64_t whole, int64_t kc, float* out) {
  using Words = std::conditional_t<std::is_same_v<T, bf16>, Pair, RoundedPair>;
  pack_b_columns(reinterpret_cast<const Words*>(b), ldb, cols, whole, out);
  const int64_t width = width_of(cols);
  for (int64_t k = whole; k < kc; ++k)
    for (int64_t j = 0; j < width; ++j)
      out[k * width + j] = j < cols ? join<T>(b + j * ldb + 2 * k, nullptr) : 0.0f;
}

template <class T>
void pack_b(const GemmPackB& p) {
  const T* b = static_cast<const T*>(p.b);
  if constexpr (!std::is_same_v<T, float>) {
    if (p.pairs) {
      const int64_t whole = min64(p.kc, p.depth / 2 - p.k0);
      if (p.transposed)
        pack_b_column_pairs(b + p.col0 * p.ldb + 2 * p.k0, p.ldb, p.cols, whole, p.kc, p.out);
      else
        pack_b_row_pairs(b + 2 * p.k0 * p.ldb + p.col0, p.ldb, p.cols, whole, p.kc, p.out);
      return;
    }
  }
  if (p.transposed)
    pack_b_columns(b + p.col0 * p.ldb + p.k0, p.ldb, p.cols, p.kc, p.out);
  else
    pack_b_rows(b + p.k0 * p.ldb + p.col0, p.ldb, p.cols, p.kc, p.out);
}

}  // namespace

void gemm_pack_a(const GemmPackA& args) {
  if (args.type == DType::bf16)
    pack_a<bf16>(args);
  else
    pack_a<float>(args);
}

void gemm_pack_b(const GemmPackB& args) {
  if (args.type == DType::bf16)
    pack_b<bf16>(args);
  else if (args.type == DType::f32_as_bf16)
    pack_b<RoundedFloat>(args);
  else
    pack_b<float>(args);
}

}  // namespace ingot::INGOT_ISA
