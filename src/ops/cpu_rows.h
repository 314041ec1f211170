// What the CPU glue of several ops shares: which types fast kernels take, how fine work is cut, and copies of
// whole tensors.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/parallel.h"
#include "device/simd/row_functions.h"
#include "tape/op.h"

namespace ingot {

/// Why a kernel for f32 and bf16 cannot take the call, or nullptr. Integer tensors are not looked at. `weight`: the input that
/// may be f32_as_bf16.
inline const char* refuse_other_floats(const OpCall& call, size_t weight) {
  const Tensor* may_round = weight < call.in.size() ? &call.in[weight] : nullptr;
  for (const auto& list : {call.in, call.out, call.d_out})
    for (const Tensor& t : list) {
      const DType type = &t == may_round ? value_type(t.dtype()) : t.dtype();
      if (t.defined() && type != DType::i32 && type != DType::f32 && type != DType::bf16)
        return "a type other than f32 and bf16";
    }
  for (const GradSlot& g : call.d_in)
    if (g.wanted() && g.tensor.dtype() != DType::f32 && g.tensor.dtype() != DType::bf16)
      return "a gradient of a type other than f32 and bf16";
  return nullptr;
}

inline const char* refuse_other_floats(const OpCall& call) {
  return refuse_other_floats(call, call.in.size());
}

/// Rows of `width` elements per piece of work, so that a piece has about `elements` (at least one row).
inline int64_t row_grain(int64_t width, int64_t elements) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, width));
}

/// Columns per piece of work of a sum over rows: all of them for a small problem.
inline int64_t column_grain(int64_t rows, int64_t columns) {
  return rows * columns < 1 << 16 ? std::max<int64_t>(columns, 1) : 128;
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

/// Each row of `to` (+)= the sum of the rows of `from` that its k indices name; see gather_rows.
inline void gather_tensor_rows(const GradSlot& to, const Tensor& from, const int32_t* index, int64_t k) {
  const GatherArgs args{to.tensor.data, to.tensor.dtype(), from.data, from.dtype(), index, k,
                        from.dim(1),    to.accumulate};
  constexpr int64_t kElements = 1 << 15;
  parallel_for(to.tensor.dim(0), row_grain(args.width * k, kElements), [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(gather_rows)(args, begin, end);
  });
}

}  // namespace ingot
