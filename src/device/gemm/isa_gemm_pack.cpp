// Packing A and B into micro-panels, for one instruction set. See gemm_kernels.h for their layout.
//
// An operand is packed as f32, as bf16 widened to f32 (where the other operand is f32), or as pairs of bf16.
// B may also be f32 that is rounded to bf16 while it is packed (GemmOperand::round), widened or in pairs.
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_shape.h"
#include "device/simd/simd.h"
#include "device/simd/transpose.h"

namespace ingot::INGOT_ISA {

/// Two neighbours along k as they are stored; moved as one word.
struct Pair {
  bf16 low, high;
};

/// Two neighbours along k in f32 that are rounded to bf16; they become one word.
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
  const Vec first = load(x), second = load(x + kLanes);  // the bf16 numbers are the upper halves
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

/// p advanced by elements of the operand's own type, of which a pair is two.
template <class T>
const T* advance(const T* p, int64_t elements) {
  return p + elements;
}
template <>
const Pair* advance(const Pair* p, int64_t elements) {
  return reinterpret_cast<const Pair*>(reinterpret_cast<const bf16*>(p) + elements);
}

template <>
const RoundedPair* advance(const RoundedPair* p, int64_t elements) {
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

/// Up to kMr rows of A stored [m, k] -> out[kc][kMr].
template <class T>
void pack_a_rows(const T* a, int64_t lda, int64_t rows, int64_t kc, float* out) {
  int64_t k = 0;
#if defined(INGOT_ISA_avx512)
  if (rows == kMr)
    for (; k + 8 <= kc; k += 8) {
      __m256 r[8];
      for (int i = 0; i < 8; ++i) r[i] = load8(advance(a, i * lda) + k);
      transpose8(r);
      for (int i = 0; i < 8; ++i) _mm256_storeu_ps(out + (k + i) * 8, r[i]);
    }
#elif defined(INGOT_ISA_avx2)
  if (rows == kMr)
    for (; k + 8 <= kc; k += 8) {
      __m256 r[8];
      for (int i = 0; i < 4; ++i) r[i] = load8(advance(a, i * lda) + k);
      for (int i = 4; i < 8; ++i) r[i] = r[0];
      transpose8(r);
      for (int i = 0; i < 8; ++i) _mm_storeu_ps(out + (k + i) * 4, _mm256_castps256_ps128(r[i]));
    }
#endif
  for (; k < kc; ++k)
    for (int i = 0; i < kMr; ++i) out[k * kMr + i] = i < rows ? word(advance(a, i * lda)[k]) : 0.0f;
}

/// The same for pairs; from k-step `whole` on they lack their second half.
void pack_a_pairs(const bf16* a, int64_t lda, int64_t rows, int64_t whole, int64_t kc, float* out) {
  pack_a_rows(reinterpret_cast<const Pair*>(a), lda, rows, whole, out);
  for (int64_t k = whole; k < kc; ++k)
    for (int i = 0; i < kMr; ++i)
      out[k * kMr + i] = i < rows ? join<bf16>(a + i * lda + 2 * k, nullptr) : 0.0f;
}

/// A stored [k, m]: the kMr words of a k-step are contiguous.
template <class T>
void pack_a_columns(const T* a, int64_t lda, int64_t rows, int64_t kc, float* out) {
  for (int64_t k = 0; k < kc; ++k, a += lda, out += kMr) {
#if defined(INGOT_ISA_avx512)
    if (rows == kMr) {
      _mm256_storeu_ps(out, load8(a));
      continue;
    }
#endif
    for (int i = 0; i < kMr; ++i) out[i] = i < rows ? to_float(a[i]) : 0.0f;
  }
}

void pack_a_column_pairs(const bf16* a, int64_t lda, int64_t rows, int64_t whole, int64_t kc, float* out) {
  for (int64_t k = 0; k < kc; ++k, a += 2 * lda, out += kMr) {
    const bf16* odd = k < whole ? a + lda : nullptr;
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
    if (rows == kMr) {
      store_tail(out, join_rows(a, odd, kMr), kMr);
      continue;
    }
#endif
    for (int i = 0; i < kMr; ++i) out[i] = i < rows ? join(a + i, odd == nullptr ? odd : odd + i) : 0.0f;
  }
}

/// A stored [m, k].
template <class T>
void pack_a_by_rows(const GemmPackA& p) {
  const int64_t lda = p.a.ld();
  const T* a = static_cast<const T*>(p.a.base);
  for (int64_t i = 0; i < p.rows; i += kMr, a += kMr * lda) {
    const int64_t rows = min64(kMr, p.rows - i);
    if constexpr (std::is_same_v<T, bf16>) {
      if (p.pairs) {
        pack_a_pairs(a + 2 * p.k, lda, rows, min64(p.kc, p.depth / 2 - p.k), p.kc, p.out + i * p.kc);
        continue;
      }
    }
    pack_a_rows(a + p.k, lda, rows, p.kc, p.out + i * p.kc);
  }
}

/// A stored [k, m]. A few k-steps at a time: neighbouring micro-panels share cache lines, and lines 4 KiB
/// apart share a cache set.
template <class T>
void pack_a_by_columns(const GemmPackA& p) {
  const int64_t lda = p.a.ld();
  constexpr int64_t kSteps = 4;
  const T* a = static_cast<const T*>(p.a.base);
  for (int64_t q = 0; q < p.kc; q += kSteps)
    for (int64_t i = 0; i < p.rows; i += kMr) {
      const int64_t rows = min64(kMr, p.rows - i), steps = min64(kSteps, p.kc - q), k = p.k + q;
      float* out = p.out + i * p.kc + q * kMr;
      if constexpr (std::is_same_v<T, bf16>) {
        if (p.pairs) {
          pack_a_column_pairs(a + 2 * k * lda + i, lda, rows, p.depth / 2 - k, steps, out);
          continue;
        }
      }
      pack_a_columns(a + k * lda + i, lda, rows, steps, out);
    }
}

template <class T>
void pack_a(const GemmPackA& p) {
  if (p.a.k_contiguous())
    pack_a_by_rows<T>(p);
  else
    pack_a_by_columns<T>(p);
}

// ---- B

/// B stored [k, n]: the columns of a k-step are contiguous; only widening and zero padding.
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

/// B stored [n, k]: square blocks are transposed in registers.
template <class T>
void pack_b_columns(const T* b, int64_t ldb, int64_t cols, int64_t kc, float* out) {
  const int64_t width = width_of(cols);
  constexpr int64_t kLine = 64 / sizeof(T),
                    kDistance = 4 * kLine;  // more streams than the hardware prefetcher follows
  for (int64_t k = 0; k < kc; k += kLanes) {
    const int depth = static_cast<int>(min64(kLanes, kc - k));
    for (int64_t j = 0; j < cols; j += kLanes) {
      const int count = static_cast<int>(min64(kLanes, cols - j));
      Vec r[kLanes];
      if (count == kLanes && depth == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          const T* line = advance(b, (j + i) * ldb) + k;
          for (int64_t q = 0; q < kLanes; q += kLine) __builtin_prefetch(line + kDistance + q);
          r[i] = load(line);
        }
        transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(out + (k + i) * width + j, r[i]);
      } else {
        for (int i = 0; i < kLanes; ++i)
          r[i] = i < count ? load_tail(advance(b, (j + i) * ldb) + k, depth) : zero();
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
  const int64_t ldb = p.b.ld();
  const T* b = static_cast<const T*>(p.b.base);
  if constexpr (!std::is_same_v<T, float>) {
    if (p.pairs) {
      const int64_t whole = min64(p.kc, p.depth / 2 - p.k0);
      if (p.b.k_contiguous())
        pack_b_column_pairs(b + p.col0 * ldb + 2 * p.k0, ldb, p.cols, whole, p.kc, p.out);
      else
        pack_b_row_pairs(b + 2 * p.k0 * ldb + p.col0, ldb, p.cols, whole, p.kc, p.out);
      return;
    }
  }
  if (p.b.k_contiguous())
    pack_b_columns(b + p.col0 * ldb + p.k0, ldb, p.cols, p.kc, p.out);
  else
    pack_b_rows(b + p.k0 * ldb + p.col0, ldb, p.cols, p.kc, p.out);
}

}  // namespace

void gemm_pack_a(const GemmPackA& args) {
  if (args.a.type == DType::bf16)
    pack_a<bf16>(args);
  else
    pack_a<float>(args);
}

void gemm_pack_b(const GemmPackB& args) {
  if (args.b.type == DType::bf16)
    pack_b<bf16>(args);
  else if (args.b.round)
    pack_b<RoundedFloat>(args);
  else
    pack_b<float>(args);
}

}  // namespace ingot::INGOT_ISA
