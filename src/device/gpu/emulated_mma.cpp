// See emulated_mma.h.
#include "device/gpu/emulated_mma.h"

#include <cmath>

#include "base/dtype.h"

namespace ingot::emulator {
namespace {

constexpr unsigned kRows = 16, kColumns = 8, kDepth = 16, kThreads = 32;

float lower(uint32_t pair) {
  return to_float(bf16{static_cast<uint16_t>(pair)});
}
float upper(uint32_t pair) {
  return to_float(bf16{static_cast<uint16_t>(pair >> 16)});
}

}  // namespace

void multiply(void* const* brought, unsigned) {
  float a[kRows][kDepth], b[kDepth][kColumns];
  for (unsigned t = 0; t < kThreads; ++t) {
    const Mma& own = *static_cast<const Mma*>(brought[t]);
    const unsigned group = t / 4, place = t % 4 * 2;
    for (unsigned r = 0; r < 4; ++r) {
      float* const to = &a[group + r % 2 * 8][place + r / 2 * 8];
      to[0] = lower(own.a[r]), to[1] = upper(own.a[r]);
    }
    for (unsigned r = 0; r < 2; ++r) {
      const unsigned k = place + r * 8;
      b[k][group] = lower(own.b[r]), b[k + 1][group] = upper(own.b[r]);
    }
  }
  for (unsigned t = 0; t < kThreads; ++t) {
    const Mma& own = *static_cast<const Mma*>(brought[t]);
    for (unsigned r = 0; r < 4; ++r) {
      const unsigned row = t / 4 + r / 2 * 8, column = t % 4 * 2 + r % 2;
      for (unsigned k = 0; k < kDepth; ++k) own.sums[r] = std::fma(a[row][k], b[k][column], own.sums[r]);
    }
  }
}

}  // namespace ingot::emulator
