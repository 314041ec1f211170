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

struct Product {
  float a[kRows][kDepth], b[kDepth][kColumns], sums[kRows][kColumns];
};
inline __attribute__((always_inline)) void add_rows(Product& p) {
  for (unsigned row = 0; row < kRows; ++row)
    for (unsigned k = 0; k < kDepth; ++k)
      for (unsigned column = 0; column < kColumns; ++column)
        p.sums[row][column] = std::fma(p.a[row][k], p.b[k][column], p.sums[row][column]);
}
/// Many times as fast where the processor has the instruction.
__attribute__((target("avx2,fma"))) void add_rows_by_fma(Product& p) {
  add_rows(p);
}

}  // namespace

void multiply(void* const* brought, unsigned) {
  static const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  Product p;
  for (unsigned t = 0; t < kThreads; ++t) {
    const Mma& own = *static_cast<const Mma*>(brought[t]);
    const unsigned group = t / 4, place = t % 4 * 2;
    for (unsigned r = 0; r < 4; ++r) {
      float* const to = &p.a[group + r % 2 * 8][place + r / 2 * 8];
      to[0] = lower(own.a[r]), to[1] = upper(own.a[r]);
    }
    for (unsigned r = 0; r < 2; ++r) {
      const unsigned k = place + r * 8;
      p.b[k][group] = lower(own.b[r]), p.b[k + 1][group] = upper(own.b[r]);
    }
    for (unsigned r = 0; r < 4; ++r) p.sums[group + r / 2 * 8][place + r % 2] = own.sums[r];
  }
  has_fma ? add_rows_by_fma(p) : add_rows(p);
  for (unsigned t = 0; t < kThreads; ++t) {
    const Mma& own = *static_cast<const Mma*>(brought[t]);
    for (unsigned r = 0; r < 4; ++r) own.sums[r] = p.sums[t / 4 + r / 2 * 8][t % 4 * 2 + r % 2];
  }
}

}  // namespace ingot::emulator
