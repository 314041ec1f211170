// Muon's element-wise passes for one element: the text of the kernels of every instruction set and of GPUs;
// formulas: kernels.h.
#pragma once
#include "device/simd/simd.h"
#include "optim/kernels.h"

namespace ingot::INGOT_ISA {

/// MomentumChunk: the new momentum; returns the input of Newton-Schulz.
template <bool nesterov>
INGOT_INLINE float momentum_element(float grad, float scale, float beta, float weight, float& momentum) {
  const float g = weight * (grad * scale);
  const float next = beta * momentum + g;
  momentum = next;
  return nesterov ? g + beta * next : next;
}

/// ApplyChunk: the new weight.
INGOT_INLINE float applied_element(float before, float update, float decay, float step) {
  return before * decay - step * update;
}

}  // namespace ingot::INGOT_ISA
