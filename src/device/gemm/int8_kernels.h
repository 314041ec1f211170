// Micro-panels of int8 weights, which PackedWeights holds and isa_int8.cpp packs and widens. Internal to this
// folder.
//
// A panel of `width` columns over k: [ceil(k / kInt8Block)][width] scales in f32, then [k][width] int8
// numbers q. The weight at (k, column) is q * scale, rounded to f32 once; what multiplies it does not know
// that it was int8.
#pragma once
#include <cstddef>
#include <cstdint>

#include "device/gemm/gemm.h"
#include "device/gemm/gemm_kernels.h"
#include "device/simd/isa.h"

namespace ingot {

/// Always inlined, as these are compiled for every instruction set.
#define INGOT_INT8_INLINE inline __attribute__((always_inline))

INGOT_INT8_INLINE constexpr int64_t int8_blocks(int64_t k) {
  return (k + kInt8Block - 1) / kInt8Block;
}
INGOT_INT8_INLINE constexpr int64_t int8_panel_bytes(int64_t width, int64_t k) {
  return width * (int8_blocks(k) * int64_t{sizeof(float)} + k);
}

struct Int8Panel {
  const std::byte* data;
  int64_t width, k;
  INGOT_INT8_INLINE const float* scales() const { return reinterpret_cast<const float*>(data); }
  INGOT_INT8_INLINE const int8_t* numbers() const {
    return reinterpret_cast<const int8_t*>(data + int8_blocks(k) * width * int64_t{sizeof(float)});
  }
};

/// Quantizes the columns that `b` names (all of its k, at most a tile's columns) into `out`: a panel.
INGOT_ISA_KERNEL(void, int8_pack, (const GemmPackB& b, std::byte* out));
/// Steps k .. k + kc of a panel as f32 [kc][width].
INGOT_ISA_KERNEL(void, int8_widen, (const Int8Panel& panel, int64_t k, int64_t kc, float* out));

}  // namespace ingot
