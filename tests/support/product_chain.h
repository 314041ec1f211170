// The naive loop of a matrix product's element, whose bits every product has (device/gemm/gemm.h).
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

namespace ingot::test {

inline float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}
/// One rounding; subnormal operands and results are zeros. Whether a result is subnormal is decided by its
/// value rounded to 24 bits without a lowest exponent.
inline float flushing_fma(float a, float b, float c) {
  a = flushed(a), b = flushed(b), c = flushed(c);
  const float up = 0x1p64f;  // exact: only used where everything is small
  const bool small = std::fabs(c) < 1 && std::fabs(a * b) < 1;
  const float r = std::fma(a, b, c);
  const bool subnormal = small && std::fabs(std::fma(a * 0x1p32f, b * 0x1p32f, c * up)) < 0x1p-62f;
  return subnormal ? std::copysign(0.0f, r) : r;
}

/// The contract: a chain over ascending k; over pairs of k, the odd one first, where both operands are bf16.
template <class A, class B>
float chain(bool pairs, int64_t depth, float acc, const A& a, const B& b) {
  if (!pairs) {
    for (int64_t k = 0; k < depth; ++k) acc = std::fma(a(k), b(k), acc);
    return acc;
  }
  for (int64_t k = 0; k < depth; k += 2) {
    acc = k + 1 < depth ? flushing_fma(a(k + 1), b(k + 1), acc) : flushing_fma(0, 0, acc);
    acc = flushing_fma(a(k), b(k), acc);
  }
  return acc;
}

}  // namespace ingot::test
