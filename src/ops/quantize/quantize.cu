// quantize and dequantize on a GPU: four threads for a tile of a row.
#include "device/simd/row_kernels.h"
#include "ops/quantize/gpu_quantize.h"
#include "ops/quantize/rows.h"

namespace ingot::INGOT_ISA {
namespace {

template <class X>
INGOT_KERNEL(kRowKernelThreads)
quantize_kernel(const QuantizeRows p) {
  const int64_t tiles = quantized_tiles(p.width), row = row_of_thread() / tiles;
  if (row < p.rows) quantize_tile(p, static_cast<const X*>(p.x), row, row_of_thread() % tiles);
}

template <class X>
INGOT_KERNEL(kRowKernelThreads)
dequantize_kernel(const DequantizeRows p) {
  const int64_t tiles = quantized_tiles(p.width), row = row_of_thread() / tiles;
  if (row < p.rows) dequantize_tile(p, static_cast<X*>(p.x), row, row_of_thread() % tiles);
}

GpuGrid grid_of_tiles(int64_t rows, int64_t width) {
  return grid_of_rows(rows * quantized_tiles(width));
}

}  // namespace

void launch_quantize(GpuStream stream, const QuantizeRows& p) {
  typed(p.x, p.x_type, [&]<class X>(const X*) {
    launch("quantize", quantize_kernel<X>, grid_of_tiles(p.rows, p.width), stream, p);
  });
}

void launch_dequantize(GpuStream stream, const DequantizeRows& p) {
  typed(p.x, p.x_type, [&]<class X>(X*) {
    launch("dequantize", dequantize_kernel<X>, grid_of_tiles(p.rows, p.width), stream, p);
  });
}

}  // namespace ingot::INGOT_ISA
