// Work on arrays on a GPU: four threads for 16 elements.
#include "device/simd/gather.h"
#include "device/simd/gpu_array.h"
#include "device/simd/loops.h"
#include "device/simd/row_kernels.h"

namespace ingot::INGOT_ISA {
namespace {

template <class To, class From>
INGOT_KERNEL(kRowKernelThreads)
array_copy_kernel(const GpuArrayCopy copy) {
  const int64_t i = row_of_thread() * kLanes;
  if (i >= copy.n) return;
  copy_n(static_cast<To*>(copy.to) + i, static_cast<const From*>(copy.from) + i, min64(kLanes, copy.n - i),
         copy.accumulate);
}

/// Four threads for 16 columns of a row: all of the first row, of the second, ...
template <class To, class From>
INGOT_KERNEL(kRowKernelThreads)
gather_kernel(const GatherArgs args, const LiveRowCount rows) {
  const int64_t groups = (args.width + kLanes - 1) / kLanes, r = row_of_thread() / groups,
                i = row_of_thread() % groups * kLanes;
  if (r >= rows.capacity || !is_live(rows, r)) return;
  const int n = static_cast<int>(min64(kLanes, args.width - i));
  const int32_t* index = args.index + r * args.k;
  const Vec x = is_copy(args, index)
                    ? load_n(static_cast<const From*>(args.from) + index[0] * args.width + i, n)
                    : gathered_sum<From>(args, index, i, n);
  put_n(static_cast<To*>(args.to) + r * args.width + i, x, n, args.accumulate);
}

}  // namespace

void launch_gather(GpuStream stream, const GatherArgs& args, int64_t rows, const int32_t* end) {
  const GpuGrid grid = grid_of_rows(rows * ((args.width + kLanes - 1) / kLanes));
  typed(args.to, args.to_type, [&]<class To>(To*) {
    const auto run = [&]<class From>() {
      launch("gather", gather_kernel<To, From>, grid, stream, args, LiveRowCount{rows, end});
    };
    if (args.round) return run.template operator()<RoundedFloat>();
    if (args.from_type == DType::bf16) return run.template operator()<bf16>();
    run.template operator()<float>();
  });
}

void launch_array_copy(GpuStream stream, const GpuArrayCopy& copy) {
  typed(copy.to, copy.to_type, [&]<class To>(To*) {
    typed(copy.from, copy.from_type, [&]<class From>(const From*) {
      launch("array_copy", array_copy_kernel<To, From>, grid_of_rows((copy.n + kLanes - 1) / kLanes), stream,
             copy);
    });
  });
}

}  // namespace ingot::INGOT_ISA
