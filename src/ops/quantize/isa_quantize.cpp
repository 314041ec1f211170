// quantize's and dequantize's inner loops, compiled once per instruction set.
#include "ops/quantize/isa_quantize.h"

#include "ops/quantize/rows.h"

namespace ingot::INGOT_ISA {

void quantize_rows(const QuantizeRows& p, int64_t begin, int64_t end) {
  typed(p.x, p.x_type, [&](auto* x) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t tile = 0; tile < quantized_tiles(p.width); ++tile) quantize_tile(p, x, t, tile);
  });
}

void dequantize_rows(const DequantizeRows& p, int64_t begin, int64_t end) {
  typed(p.x, p.x_type, [&](auto* x) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t tile = 0; tile < quantized_tiles(p.width); ++tile) dequantize_tile(p, x, t, tile);
  });
}

}  // namespace ingot::INGOT_ISA
