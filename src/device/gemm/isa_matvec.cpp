// Few rows times packed weights, for one instruction set: each weight is prefetched, loaded once, and used
// for all rows. The bits are those of the micro-kernel (isa_gemm.cpp).
#include "device/gemm/gemm_k_step.h"
#include "device/gemm/gemm_shape.h"
#include "device/gemm/int8_kernels.h"
#include "device/gemm/matvec_kernels.h"
#include "device/simd/simd_int8.h"

namespace ingot::INGOT_ISA {
namespace {

/// Prefetch distance in bytes: what a core reads in 400 ns. With less, int8 weights stay below the rate of
/// memory, because a k-step is less than a cache line. Not into level 2, as weights are read once: what the
/// ops between products need stays there.
constexpr int64_t kDistance = 16384;

template <int64_t kBytes>
INGOT_INLINE void prefetch_ahead(const void* p) {
  for (int64_t i = 0; i < (kBytes + 63) / 64; ++i)
    __builtin_prefetch(static_cast<const char*>(p) + kDistance + 64 * i, 0, 0);
}

/// One micro-panel of f32 words or of pairs. Not inlined, so that a change of the floating-point mode stays
/// around it.
template <int MR, int NV, class KStep>
__attribute__((noinline)) void sum_words(const FewRows& p, const std::byte* panel, Vec (&acc)[MR][NV]) {
  const int64_t steps = p.b_type == DType::bf16 ? (p.k + 1) / 2 : p.k;
  const float* b = reinterpret_cast<const float*>(panel);
  Vec sum[MR][NV];
  for (int i = 0; i < MR; ++i)
    for (int v = 0; v < NV; ++v) sum[i][v] = zero();
  for (int64_t k = 0; k < steps; ++k, b += NV * kLanes) {
    prefetch_ahead<NV * kLanes * 4>(b);
    Vec bv[NV];
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < MR; ++i) {
      const Vec x = set1(p.x[i * p.x_stride + k]);
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) sum[i][v] = KStep::step(x, bv[v], sum[i][v]);
    }
  }
  for (int i = 0; i < MR; ++i)
    for (int v = 0; v < NV; ++v) acc[i][v] = sum[i][v];
}

template <int MR, int NV>
void sum_int8(const FewRows& p, const std::byte* panel, Vec (&acc)[MR][NV]) {
  constexpr int64_t kWidth = NV * kLanes;
  const Int8Panel q{panel, kWidth, p.k};
  const int8_t* b = q.numbers();
  Vec sum[MR][NV];  // in registers: acc might alias what is loaded
  for (int i = 0; i < MR; ++i)
    for (int v = 0; v < NV; ++v) sum[i][v] = zero();
  for (int64_t k0 = 0; k0 < p.k; k0 += kInt8Block) {
    const float* scale = q.scales() + k0 / kInt8Block * kWidth;
    prefetch_ahead<kWidth * 4>(scale);
    Vec s[NV];
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) s[v] = load(scale + v * kLanes);
    const int64_t end = min64(p.k, k0 + kInt8Block);
    for (int64_t k = k0; k < end; ++k, b += kWidth) {
      prefetch_ahead<kWidth>(b);
      Vec bv[NV];
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) bv[v] = convert(load_int8(b + v * kLanes)) * s[v];
#pragma GCC unroll 4
      for (int i = 0; i < MR; ++i) {
        const Vec x = set1(p.x[i * p.x_stride + k]);
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) sum[i][v] = F32Step::step(x, bv[v], sum[i][v]);
      }
    }
  }
  for (int i = 0; i < MR; ++i)
    for (int v = 0; v < NV; ++v) acc[i][v] = sum[i][v];
}

template <int MR, int NV>
void sum_panel(const FewRows& p, const std::byte* panel, Vec (&acc)[MR][NV]) {
  if (p.b_type == DType::u8) return sum_int8<MR, NV>(p, panel, acc);
  if (p.b_type == DType::f32) return sum_words<MR, NV, F32Step>(p, panel, acc);
#if defined(INGOT_ISA_avx512)
  if (active_isa() == Isa::avx512bf16) return sum_words<MR, NV, DotProductStep>(p, panel, acc);
#endif
  const unsigned mode = flush_subnormals();
  sum_words<MR, NV, TwoFmaStep>(p, panel, acc);
  restore_mode(mode);
}

template <int MR, int NV, class T>
void add_bias(const T* bias, int cols, Vec (&acc)[MR][NV]) {
  for (int v = 0; v < NV; ++v) {
    const Vec add = load_cols<NV>(bias, v, cols);
    for (int i = 0; i < MR; ++i) acc[i][v] = acc[i][v] + add;
  }
}

template <int MR, int NV, class T>
void store_rows(T* c, int64_t ldc, int cols, const Vec (&acc)[MR][NV]) {
  for (int i = 0; i < MR; ++i)
    for (int v = 0; v < NV; ++v) store_cols<NV>(c + i * ldc, v, cols, acc[i][v]);
}

template <int MR, int NV>
void run_panel(const FewRows& p, const std::byte* panel, int64_t col0) {
  const int cols = static_cast<int>(min64(kNr, p.n - col0));
  Vec acc[MR][NV];
  sum_panel<MR, NV>(p, panel, acc);
  if (p.bias != nullptr) {
    if (p.bias_type == DType::bf16)
      add_bias(static_cast<const bf16*>(p.bias) + col0, cols, acc);
    else
      add_bias(static_cast<const float*>(p.bias) + col0, cols, acc);
  }
  if (p.c_type == DType::bf16)
    store_rows(static_cast<bf16*>(p.c) + col0, p.ldc, cols, acc);
  else
    store_rows(static_cast<float*>(p.c) + col0, p.ldc, cols, acc);
}

template <int MR>
void run_panels(const FewRows& p) {
  const int64_t bytes = p.b_type == DType::u8     ? int8_panel_bytes(kNr, p.k)
                        : p.b_type == DType::bf16 ? (p.k + 1) / 2 * kNr * 4
                                                  : p.k * kNr * 4;
  for (int64_t i = p.first; i < p.last; ++i) {
    const int64_t col0 = i * kNr, vecs = width_of(min64(kNr, p.n - col0)) / kLanes;
    const std::byte* panel = p.b + i * bytes;
    with_constant<kVecs>(vecs, [&]<int NV>() { run_panel<MR, NV>(p, panel, col0); });
  }
}

}  // namespace

void few_rows(const FewRows& p) {
  with_constant<int{kFewRows}>(p.rows, [&]<int MR>() { run_panels<MR>(p); });
}

}  // namespace ingot::INGOT_ISA
