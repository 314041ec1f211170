// Integer division and rounding upwards. Always inlined, so that kernels (device/simd/isa.h) may use them.
#pragma once
#include <cstdint>

namespace ingot {

[[gnu::always_inline]] constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
/// The least multiple of `unit` that is at least n.
[[gnu::always_inline]] constexpr int64_t round_up(int64_t n, int64_t unit) {
  return ceil_div(n, unit) * unit;
}

}  // namespace ingot
