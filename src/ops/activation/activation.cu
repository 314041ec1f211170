// activation on a GPU: four threads a row.
// spills: at most 8 bytes, for the slow path of an IEEE division.
#include "device/simd/row_kernels.h"
#include "ops/activation/gpu_activation.h"
#include "ops/activation/rows.h"

namespace ingot::INGOT_ISA {
namespace {

template <ActivationFunction F, bool kGated, class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
forward_kernel(const ActivationRows args, const LiveRowCount rows) {
  const int64_t t = row_of_thread();
  if (is_live(rows, t)) forward_rows<F, kGated, X, Y>(args, t, t + 1);
}

template <ActivationFunction F, bool kGated, class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
backward_kernel(const ActivationRows args, const LiveRowCount rows) {
  const int64_t t = row_of_thread();
  if (is_live(rows, t)) backward_rows<F, kGated, X, Y>(args, t, t + 1);
}

}  // namespace

void launch_activation_forward(GpuStream stream, const ActivationRows& args, int64_t rows,
                               const int32_t* end) {
  with_types(args, [&]<ActivationFunction F, bool kGated, class X, class Y>() {
    launch("activation_forward", forward_kernel<F, kGated, X, Y>, grid_of_rows(rows), stream, args,
           LiveRowCount{rows, end});
  });
}

void launch_activation_backward(GpuStream stream, const ActivationRows& args, int64_t rows,
                                const int32_t* end) {
  with_types(args, [&]<ActivationFunction F, bool kGated, class X, class Y>() {
    launch("activation_backward", backward_kernel<F, kGated, X, Y>, grid_of_rows(rows), stream, args,
           LiveRowCount{rows, end});
  });
}

}  // namespace ingot::INGOT_ISA
