// What the CPU glue of several ops shares: which types fast kernels take, how fine work is cut, and copies of
// whole tensors.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/parallel.h"
#include "device/cpu/row_functions.h"
#include "ops/op.h"

namespace ingot {

/// Why a kernel for f32 and bf16 cannot take the call, or nullptr. Integer tensors are not looked at.
inline const char* refuse_other_floats(const OpCall& call) {
  for (const auto& list : {call.in, call.out, call.d_out})
    for (const Tensor& t : list)
      if (t.defined() && t.dtype() != DType::i32 && t.dtype() != DType::f32 && t.dtype() != DType::bf16)
        return "a type other than f32 and bf16";
  for (const GradSlot& g : call.d_in)
    if (g.wanted() && g.tensor.dtype() != DType::f32 && g.tensor.dtype() != DType::bf16)
      return "a gradient of a type other than f32 and bf16";
  return nullptr;
}

/// Rows of `width` elements per piece of work, so that a piece has about `elements` (at least one row).
inline int64_t row_grain(int64_t width, int64_t elements) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, width));
}

/// to (+)= from, any of f32 and bf16, the same number of elements; in parallel.
inline void copy_tensor(void* to, DType to_type, const void* from, DType from_type, int64_t n,
                        bool accumulate) {
  constexpr int64_t kGrain = 1 << 15;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(array_copy)
    (static_cast<char*>(to) + begin * size_of(to_type), to_type,
     static_cast<const char*>(from) + begin * size_of(from_type), from_type, end - begin, accumulate);
  });
}
inline void copy_tensor(const GradSlot& to, const Tensor& from) {
  if (to.wanted())
    copy_tensor(to.tensor.data, to.tensor.dtype(), from.data, from.dtype(), from.numel(), to.accumulate);
}

}  // namespace ingot
