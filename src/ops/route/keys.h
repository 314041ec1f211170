// Scores as integers in their order, for kernels of every instruction set and of GPUs.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

INGOT_INLINE VecI choice(Mask m, VecI a, VecI b) {
  return as_int(select(m, as_float(a), as_float(b)));
}

/// Integers in the order of the scores (both zeros equal), NaN below -inf; INT32_MIN is below all.
INGOT_INLINE VecI key_of(Vec score) {
  const VecI u = as_int(score + zero());
  const VecI ordered = u ^ (shift_right<31>(u) & set1i(INT32_MAX));
  return choice(is_nan(score), set1i(INT32_MIN + 1), ordered);
}
INGOT_INLINE Vec score_of(VecI key) {
  return as_float(key ^ (shift_right<31>(key) & set1i(INT32_MAX)));
}

}  // namespace ingot::INGOT_ISA
