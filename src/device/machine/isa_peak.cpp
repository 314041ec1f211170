// See peak_kernels.h.
#include "device/machine/peak_kernels.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {
namespace {

struct Fma {
  static constexpr int64_t kFlops = 2;
  static INGOT_INLINE Vec step(Vec x, Vec y, Vec acc) { return fma(x, y, acc); }
};
#if defined(INGOT_ISA_avx512)
struct Dot {
  static constexpr int64_t kFlops = 4;
  static INGOT_INLINE Vec step(Vec x, Vec y, Vec acc) {
    return {_mm512_dpbf16_ps(acc.v, (__m512bh)x.v, (__m512bh)y.v)};
  }
};
#else
using Dot = Fma;
#endif

template <class Step>
int64_t run_flops(int64_t steps, float* sink) {
#if defined(INGOT_ISA_avx512)
  constexpr int kSums = 24;  // over latency times ports, under the number of registers
#elif defined(INGOT_ISA_avx2)
  constexpr int kSums = 12;
#else
  constexpr int kSums = 8;
#endif
  Vec acc[kSums];
  const Vec x = set1(sink[0]), y = set1(sink[1]);
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i)
    acc[i] = set1(static_cast<float>(i));  // equal sums would be merged into one
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) acc[i] = Step::step(x, y, acc[i]);
  }
  Vec sum = zero();
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sum = sum + acc[i];
  store_tail(sink + 2, sum, 1);
  return Step::kFlops * kSums * kLanes;
}

/// Four floats: a vector of any x86-64.
typedef float Narrow __attribute__((vector_size(16), aligned(4), may_alias));

/// to = of(x, y), floats in so many bytes each; `of` takes vectors of either width.
template <class Of>
INGOT_INLINE void combine(void* to, const void* x, const void* y, int64_t bytes, PeakVectors vectors,
                          const Of& of) {
  float* out = static_cast<float*>(to);
  const float *a = static_cast<const float*>(x), *b = static_cast<const float*>(y);
  if (vectors == PeakVectors::narrow) {
    for (int64_t i = 0; i < bytes / 4; i += 4) {
      const Narrow v = of(*reinterpret_cast<const Narrow*>(a + i), *reinterpret_cast<const Narrow*>(b + i));
      *reinterpret_cast<Narrow*>(out + i) = v;
      asm volatile("");  // keeps the loop as it is written, not a call of memmove
    }
    return;
  }
  for (int64_t i = 0; i < bytes / 4; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j)
      store(out + i + j * kLanes, of(load(a + i + j * kLanes), load(b + i + j * kLanes)));
}

struct Copy {
  Vec operator()(Vec a, Vec) const { return a; }
  Narrow operator()(Narrow a, Narrow) const { return a; }
};
struct Add {
  Vec operator()(Vec a, Vec b) const { return a + b; }
  Narrow operator()(Narrow a, Narrow b) const { return a + b; }
};
struct Triad {
  Vec wide;
  float factor;
  Vec operator()(Vec a, Vec b) const { return fma(wide, b, a); }
  Narrow operator()(Narrow a, Narrow b) const { return a + factor * b; }
};

}  // namespace

int64_t peak_fma(int64_t steps, float* sink) {
  return run_flops<Fma>(steps, sink);
}
int64_t peak_dot(int64_t steps, float* sink) {
  return run_flops<Dot>(steps, sink);
}

void peak_read(const void* data, int64_t bytes, float* sink) {
  const float* p = static_cast<const float*>(data);
  Vec acc[4] = {zero(), zero(), zero(), zero()};
  for (int64_t i = 0; i < bytes / 4; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) acc[j] = acc[j] + load(p + i + j * kLanes);
  store_tail(sink + 2, (acc[0] + acc[1]) + (acc[2] + acc[3]), 1);
}

void peak_write(void* data, int64_t bytes, const float* value) {
  float* p = static_cast<float*>(data);
  const Vec v = set1(value[0]);
  for (int64_t i = 0; i < bytes / 4; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) store(p + i + j * kLanes, v);
}

void peak_stream(void* data, int64_t bytes, const float* value) {
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
  float* p = static_cast<float*>(data);
  const Vec v = set1(value[0]);
  for (int64_t i = 0; i < bytes / 4; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) {
#if defined(INGOT_ISA_avx512)
      _mm512_stream_ps(p + i + j * kLanes, v.v);
#else
      _mm256_stream_ps(p + i + j * kLanes, v.v);
#endif
    }
  _mm_sfence();
#else
  peak_write(data, bytes, value);
#endif
}

void peak_copy(void* to, const void* from, int64_t bytes, PeakVectors vectors) {
  combine(to, from, from, bytes, vectors, Copy{});
}

void peak_add(void* to, const void* x, const void* y, int64_t bytes, PeakVectors vectors) {
  combine(to, x, y, bytes, vectors, Add{});
}

void peak_triad(void* to, const void* x, const void* y, int64_t bytes, PeakVectors vectors,
                const float* factor) {
  combine(to, x, y, bytes, vectors, Triad{set1(factor[0]), factor[0]});
}

}  // namespace ingot::INGOT_ISA
