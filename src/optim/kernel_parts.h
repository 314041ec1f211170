// What the optimizer kernels share: the fixed 16-lane sum and the write of the compute copy. Included only by
// isa_*.cpp files: everything lives in an anonymous namespace, so each instruction set keeps its own code.
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int64_t kSumLanes = 16;

/// Pairwise tree over the lanes: (l, l + 8), then (l, l + 4), (l, l + 2), (0, 1).
template <class T>
inline T sum_lanes(const T (&lanes)[kSumLanes]) {
  T t[kSumLanes];
  for (int64_t l = 0; l < kSumLanes; ++l) t[l] = lanes[l];
  for (int64_t width = kSumLanes / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) t[l] += t[l + width];
  return t[0];
}

/// The compute copy of a parameter that has none: writes nothing.
struct NoCopy {};
inline void store(NoCopy*, int64_t, float) {}
inline void store(float* to, int64_t i, float x) {
  to[i] = x;
}
inline void store(bf16* to, int64_t i, float x) {
  to[i] = to_bf16(x);
}

/// Calls fn with the compute copy as a typed pointer.
template <class Args, class Fn>
inline auto with_copy(const Args& a, Fn&& fn) {
  if (!a.compute) return fn(static_cast<NoCopy*>(nullptr));
  return a.compute_bf16 ? fn(static_cast<bf16*>(a.compute)) : fn(static_cast<float*>(a.compute));
}

}  // namespace
}  // namespace ingot::INGOT_ISA
