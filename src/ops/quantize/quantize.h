// quantize / dequantize: rows in FP8 and back. What waits for backward in 8 bits (memory.fp8) goes through
// both; no gradient does.
//
//   tile       128 columns of a row beside each other, the last one fewer. It has one scale, 2^e: e is the
//              smallest for which amax / 2^e <= 448, the largest code, but at least -127 and at most 127.
//              amax = 0: e = -127
//   quantize   code = x / 2^e rounded to E4M3 (to nearest even, subnormals included, saturated at 448), the
//              sign as x has it. E4M3 is that of OCP: no infinities, 0x7F is NaN
//   NaN        a tile with NaN or an infinity has the scale NaN (0xFF) and all codes 0x7F: all of it is read
//              back as NaN
//   dequantize x = code 2^e in attr.out, which is exact but for two ends: what was rounded up to 2^128 is
//              infinite in f32 and bf16 (as f32's largest numbers are in bf16), and bf16 has fewer bits
//              below 2^-126
//
// |x - x^| is at most 2^-4 |x| where |x| >= 2^(e-6), else at most 2^(e-10); x^ = x where E4M3 has x / 2^e.
// Formats: codes [OCP-FP8], scales [OCP-MX] (E8M0: 2^(b - 127), 0xFF is NaN). Tiles of 1 x 128 for
// activations: [DeepSeek-V3] §3.3.2, [Megatron-MoE].
//
// Shapes: quantize:   x_TD (any float) -> q (u8 [T, D + ceil(D / 128)]): D codes, then the scales of the
//         row's tiles
//         dequantize: q -> x_TD (attr.out)
// A row depends on that row alone.
#pragma once
#include <optional>

#include "base/round.h"
#include "ops/quantize/isa_quantize.h"
#include "tape/tape.h"

namespace ingot {

/// Bytes of a row of `width` columns.
constexpr int64_t quantized_width(int64_t width) {
  return width + quantized_tiles(width);
}
/// The columns of a row of that many bytes.
constexpr int64_t dequantized_width(int64_t bytes) {
  return bytes - ceil_div(bytes, kQuantizedTile + 1);
}

struct DequantizeAttr {
  DType out = DType::f32;
};

const Op& quantize_op();
Kernel quantize_reference();
const Op& dequantize_op();
Kernel dequantize_reference();

/// A saved value in FP8, for policies of a tape; std::nullopt: FP8 is not smaller, or the value is not of
/// floats, or has one dimension: its tiles would hold numbers of many tokens. Rows are the last dimension.
std::optional<PackedForm> fp8_form(const TensorMeta& value);

}  // namespace ingot
