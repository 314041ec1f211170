// Work on arrays on a GPU: four threads for 16 elements.
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

}  // namespace

void launch_array_copy(GpuStream stream, const GpuArrayCopy& copy) {
  typed(copy.to, copy.to_type, [&]<class To>(To*) {
    typed(copy.from, copy.from_type, [&]<class From>(const From*) {
      launch("array_copy", array_copy_kernel<To, From>, grid_of_rows((copy.n + kLanes - 1) / kLanes), stream,
             copy);
    });
  });
}

}  // namespace ingot::INGOT_ISA
