// The upper triangle of a symmetric product, from the lower one, for one instruction set. See gemm_kernels.h.
#include "device/cpu/gemm_kernels.h"
#include "device/cpu/gemm_tile.h"
#include "device/cpu/transpose.h"

namespace ingot::INGOT_ISA {

void gemm_mirror(float* c, int64_t m, int64_t ldc, int64_t row0, int64_t rows) {
  for (int64_t i = row0; i < row0 + rows; i += kLanes) {
    const int count = static_cast<int>(min64(kLanes, m - i));
    for (int64_t j = 0; j < i; j += kLanes) {
      Vec r[kLanes];
      for (int l = 0; l < kLanes; ++l) r[l] = l < count ? load(c + (i + l) * ldc + j) : zero();
      transpose(r);
      for (int l = 0; l < kLanes; ++l)
        if (count == kLanes) store(c + (j + l) * ldc + i, r[l]);
        else store_tail(c + (j + l) * ldc + i, r[l], count);
    }
    for (int64_t k = i; k < i + count; ++k)
      for (int64_t j = i; j < k; ++j) c[j * ldc + k] = c[k * ldc + j];
  }
}

}  // namespace ingot::INGOT_ISA
