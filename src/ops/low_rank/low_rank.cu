// What low_rank does on a GPU besides its products: the scale.
#include "device/simd/loops.h"
#include "device/simd/row_kernels.h"
#include "ops/low_rank/gpu_low_rank.h"

namespace ingot::INGOT_ISA {
namespace {

/// Four threads for 16 elements.
template <class To, class From>
INGOT_KERNEL(kRowKernelThreads)
scaled_kernel(const GpuScaled a) {
  const int64_t i = row_of_thread() * kLanes;
  if (i >= a.n) return;
  const int m = static_cast<int>(min64(kLanes, a.n - i));
  put_n(static_cast<To*>(a.to) + i, set1(a.scale) * load_n(static_cast<const From*>(a.from) + i, m), m,
        a.accumulate);
}

}  // namespace

void launch_scaled(GpuStream stream, const GpuScaled& args) {
  typed(args.to, args.to_type, [&]<class To>(To*) {
    typed(args.from, args.from_type, [&]<class From>(const From*) {
      launch("scaled", scaled_kernel<To, From>, grid_of_rows((args.n + kLanes - 1) / kLanes), stream, args);
    });
  });
}

}  // namespace ingot::INGOT_ISA
