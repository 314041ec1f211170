// A weight as operand B of a matrix product, in every format that products read (WeightFormat in
// tensor/tensor.h).
#pragma once
#include "device/gemm/gemm.h"
#include "tensor/tensor.h"

namespace ingot {

/// Sets B of a GemmArgs or GroupedGemmArgs to the weight, from element `first` on (0 if it is packed).
template <class Args>
void set_weight(Args& args, const Tensor& w, int64_t first = 0) {
  INGOT_CHECK(w.packed() == nullptr || first == 0, "element {} of {}", first, w.meta.str());
  args.packed = w.packed();
  args.b = w.data == nullptr ? nullptr : static_cast<const char*>(w.data) + first * w.meta.element_bytes();
  args.b_type = w.rounded() ? DType::f32 : w.dtype();
  args.round_b = w.rounded();
}

}  // namespace ingot
