// Results transposed in registers, for one instruction set: C stored [n, m], and the upper triangle of a
// symmetric product. See gemm_kernels.h.
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_shape.h"
#include "device/simd/transpose.h"

namespace ingot::INGOT_ISA {

namespace {

Vec bias_of(const GemmTransposedC& t, int64_t i, int count) {
  if (t.c.bias == nullptr) return zero();
  return t.c.bias_type == DType::bf16 ? load_tail(static_cast<const bf16*>(t.c.bias) + i, count)
                                      : load_tail(static_cast<const float*>(t.c.bias) + i, count);
}

template <class T>
void store_transposed(const GemmTransposedC& t) {
  for (int64_t i = 0; i < t.rows; i += kLanes) {
    const int count = static_cast<int>(min64(kLanes, t.rows - i));
    const Vec bias = bias_of(t, i, count);
    for (int64_t j = 0; j < t.cols; j += kLanes) {
      Vec r[kLanes];
      for (int l = 0; l < kLanes; ++l) r[l] = l < count ? load(t.sums + (i + l) * t.width + j) : zero();
      transpose(r);
      T* c = static_cast<T*>(t.c.base) + j * t.c.stride + i;
      for (int l = 0; l < min64(kLanes, t.cols - j); ++l, c += t.c.stride) {
        const Vec x = t.c.bias != nullptr ? r[l] + bias : r[l];  // -0 + 0 would be +0
        if (count == kLanes)
          store(c, x);
        else
          store_tail(c, x, count);
      }
    }
  }
}

}  // namespace

void gemm_load_c_transposed(const GemmTransposedC& t) {
  for (int64_t i = 0; i < t.rows; i += kLanes) {
    const int count = static_cast<int>(min64(kLanes, t.rows - i));
    for (int64_t j = 0; j < t.cols; j += kLanes) {
      Vec r[kLanes];
      const float* c = static_cast<const float*>(t.c.base) + j * t.c.stride + i;
      for (int l = 0; l < kLanes; ++l, c += t.c.stride) {
        if (j + l >= t.cols) {
          r[l] = zero();
          continue;
        }
        r[l] = count == kLanes ? load(c) : load_tail(c, count);
        __builtin_prefetch(c + t.rows, 1);
      }
      transpose(r);
      for (int l = 0; l < count; ++l) store(t.sums + (i + l) * t.width + j, r[l]);
    }
  }
}

void gemm_store_c_transposed(const GemmTransposedC& args) {
  if (args.c.type == DType::bf16)
    store_transposed<bf16>(args);
  else
    store_transposed<float>(args);
}

void gemm_mirror(float* c, int64_t m, int64_t ldc, int64_t row0, int64_t rows) {
  for (int64_t i = row0; i < row0 + rows; i += kLanes) {
    const int count = static_cast<int>(min64(kLanes, m - i));
    for (int64_t j = 0; j < i; j += kLanes) {
      Vec r[kLanes];
      for (int l = 0; l < kLanes; ++l) r[l] = l < count ? load(c + (i + l) * ldc + j) : zero();
      transpose(r);
      for (int l = 0; l < kLanes; ++l)
        if (count == kLanes)
          store(c + (j + l) * ldc + i, r[l]);
        else
          store_tail(c + (j + l) * ldc + i, r[l], count);
    }
    for (int64_t k = i; k < i + count; ++k)
      for (int64_t j = i; j < k; ++j) c[j * ldc + k] = c[k * ldc + j];
  }
}

}  // namespace ingot::INGOT_ISA
