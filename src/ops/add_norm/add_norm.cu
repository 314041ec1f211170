// add_norm on a GPU: four threads a row; sums over rows by four threads for 16 columns of a chunk.
#include "device/simd/row_kernels.h"
#include "ops/add_norm/gpu_add_norm.h"
#include "ops/add_norm/rows.h"

namespace ingot::INGOT_ISA {
namespace {

template <MergeKind M, class Y, class H>
INGOT_KERNEL(kRowKernelThreads)
forward_kernel(const AddNormRows args, int64_t rows) {
  const int64_t t = row_of_thread();
  if (t < rows) forward_rows<M, Y, H>(args, t, t + 1);
}

template <MergeKind M, class Y, class H>
INGOT_KERNEL(kRowKernelThreads)
backward_kernel(const AddNormRows args, int64_t rows) {
  const int64_t t = row_of_thread();
  if (t < rows) backward_rows<false, M, Y, H>(args, t, t + 1, {});
}

/// Groups of four threads: all columns of the first chunk, of the second, ...
template <MergeKind M, class Y, class H>
INGOT_KERNEL(kRowKernelThreads)
sums_kernel(const AddNormRows args, int64_t rows, int64_t chunk, const AddNormSums sums, int64_t stride) {
  const int64_t groups = (args.width + kLanes - 1) / kLanes, c = row_of_thread() / groups, begin = c * chunk,
                i = row_of_thread() % groups * kLanes;
  if (begin >= rows) return;
  const AddNormSums own{sums.weight + c * stride, sums.bias + c * stride, sums.stream + c * stride,
                        sums.stream_scale + c * stride, sums.y_scale + c * stride};
  const int n = static_cast<int>(min64(kLanes, args.width - i));
  chunk_sums<M, Y, H>(args, begin, min64(rows, begin + chunk), i, n, own);
}

}  // namespace

void launch_add_norm_forward(GpuStream stream, const AddNormRows& args, int64_t rows) {
  with_types(args, [&]<MergeKind M, class Y, class H>() {
    launch("add_norm_forward", forward_kernel<M, Y, H>, grid_of_rows(rows), stream, args, rows);
  });
}

void launch_add_norm_backward(GpuStream stream, const AddNormRows& args, int64_t rows) {
  with_types(args, [&]<MergeKind M, class Y, class H>() {
    launch("add_norm_backward", backward_kernel<M, Y, H>, grid_of_rows(rows), stream, args, rows);
  });
}

void launch_add_norm_sums(GpuStream stream, const AddNormRows& args, int64_t rows, int64_t chunk,
                          const AddNormSums& sums, int64_t stride) {
  const int64_t chunks = (rows + chunk - 1) / chunk, groups = (args.width + kLanes - 1) / kLanes;
  with_types(args, [&]<MergeKind M, class Y, class H>() {
    launch("add_norm_sums", sums_kernel<M, Y, H>, grid_of_rows(chunks * groups), stream, args, rows, chunk,
           sums, stride);
  });
}

}  // namespace ingot::INGOT_ISA
