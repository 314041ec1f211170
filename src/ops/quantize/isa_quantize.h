// The kernels of isa_quantize.cpp, over ranges of rows. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/gpu/anywhere.h"
#include "device/simd/isa.h"

namespace ingot {

/// Columns of a tile, which share a scale.
inline constexpr int64_t kQuantizedTile = 128;
/// Tiles of a row: ceil_div(), which code of a GPU cannot call.
INGOT_ANYWHERE constexpr int64_t quantized_tiles(int64_t width) {
  return (width + kQuantizedTile - 1) / kQuantizedTile;
}

struct QuantizeRows {
  int64_t rows, width;
  const void* x;
  DType x_type;
  uint8_t* q;  ///< [rows, width + tiles]
};
struct DequantizeRows {
  int64_t rows, width;
  const uint8_t* q;
  void* x;
  DType x_type;
};

INGOT_ISA_KERNEL(void, quantize_rows, (const QuantizeRows& args, int64_t begin, int64_t end));
INGOT_ISA_KERNEL(void, dequantize_rows, (const DequantizeRows& args, int64_t begin, int64_t end));

}  // namespace ingot
