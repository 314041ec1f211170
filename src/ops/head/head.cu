// head's work on rows of logits on a GPU: four threads a row.
#include "device/simd/row_kernels.h"
#include "ops/head/gpu_head.h"
#include "ops/head/rows.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_KERNEL(kRowKernelThreads)
logits_kernel(const GpuHeadLogits args, int64_t rows) {
  const int64_t t = row_of_thread();
  if (t >= rows) return;
  float* l = args.logits + t * args.stride;
  each_vector(args.vocabulary, [&](int64_t i, int n) {
    store_n(l + i, capped_and_scaled(args.cap, args.scale, load_n(l + i, n)), n);
  });
}

INGOT_KERNEL(kRowKernelThreads)
statistics_kernel(const HeadStatistics args, int64_t rows) {
  const int64_t t = row_of_thread();
  if (t < rows) statistics_row(args, t);
}

INGOT_KERNEL(kRowKernelThreads)
d_logits_kernel(const HeadCotangents args, int64_t rows) {
  const int64_t t = row_of_thread();
  if (t < rows) d_logits_row(args, static_cast<float*>(args.d_logits) + t * args.d_stride, t);
}

}  // namespace

void launch_head_logits(GpuStream stream, const GpuHeadLogits& args, int64_t rows) {
  launch("head_logits", logits_kernel, grid_of_rows(rows), stream, args, rows);
}

void launch_head_statistics(GpuStream stream, const HeadStatistics& args, int64_t rows) {
  launch("head_statistics", statistics_kernel, grid_of_rows(rows), stream, args, rows);
}

void launch_head_d_logits(GpuStream stream, const HeadCotangents& args, int64_t rows) {
  launch("head_d_logits", d_logits_kernel, grid_of_rows(rows), stream, args, rows);
}

}  // namespace ingot::INGOT_ISA
