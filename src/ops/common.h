// What the descriptions of several ops and the glue to their CPU kernels share: the type of statistics, which
// types fast kernels take, how finely work is divided among threads, and copies of whole tensors.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "base/parallel.h"
#include "device/simd/row_functions.h"
#include "tape/op.h"

namespace ingot {

/// Op::reads of an op whose backward passes read the same whatever its attributes.
template <BackwardReads what>
BackwardReads always(const void*) {
  return what;
}
inline constexpr auto reads_nothing = always<BackwardReads{}>;

/// Type of sums and statistics over values of a type: f64 for f64, f32 for any other.
constexpr DType statistic_of(DType type) {
  return type == DType::f64 ? DType::f64 : DType::f32;
}
inline DType statistic_of(const Tensor& t) {
  return statistic_of(t.dtype());
}

/// INGOT_CHECK that an input is of this shape and type.
inline void require(const Tensor& t, const Shape& shape, DType type, const char* name) {
  INGOT_CHECK(t.shape() == shape && t.dtype() == type, "{} is {}, expected {} {}", name, t.meta.str(),
              name_of(type), shape.str());
}

/// For Kernel::refuse: `reason` where a floating tensor of the call, or a wanted gradient, is of none of
/// `types`; else nullptr. Integer tensors are not looked at.
inline const char* refuse_other_than(std::initializer_list<DType> types, const char* reason,
                                     const OpCall& call) {
  const auto taken = [&](DType type) {
    return type == DType::i32 || std::find(types.begin(), types.end(), type) != types.end();
  };
  for (const auto& list : {call.in, call.out, call.d_out})
    for (const Tensor& t : list)
      if (t.defined() && !taken(t.dtype())) return reason;
  for (const GradSlot& g : call.d_in)
    if (g.wanted() && !taken(g.tensor.dtype())) return reason;
  return nullptr;
}
inline const char* refuse_other_floats(const OpCall& call) {
  return refuse_other_than({DType::f32, DType::bf16}, "a type other than f32 and bf16", call);
}
inline const char* refuse_other_than_f32(const OpCall& call) {
  return refuse_other_than({DType::f32}, "a type other than f32", call);
}

/// For ops whose input `weight` has its gradient in f32.
inline const char* refuse_weight_types(const OpCall& call, size_t weight) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  const bool wanted = call.d_in.size() > weight && call.d_in[weight].wanted();
  return wanted && call.d_in[weight].tensor.dtype() != DType::f32 ? "a weight gradient other than f32"
                                                                  : nullptr;
}

/// The share of a permutation's `rows` (ops/permute) that hold data: by `offsets`; where these have no
/// memory, in a dry run, by the `expected` rows (0: all).
inline double live_share(const Tensor& offsets, int64_t rows, double expected) {
  if (rows == 0) return 1;
  const auto all = static_cast<double>(rows);
  if (offsets.data != nullptr && offsets.on_host())
    return static_cast<double>(rows_before_end(offsets, rows)) / all;
  return offsets.defined() && expected > 0 ? std::min(1.0, expected / all) : 1;
}
/// tensor_bytes() where the inputs and outputs of these slots (bits) count that share of their bytes.
inline double live_bytes(const OpCall& call, uint32_t inputs, uint32_t outputs, double share) {
  double bytes = 0;
  for (const auto& [list, slots] : {std::pair{call.in, inputs}, std::pair{call.out, outputs}})
    for (uint32_t i = 0; i < list.size(); ++i)
      if (list[i].defined()) bytes += static_cast<double>(list[i].bytes()) * (slots >> i & 1u ? share : 1);
  return bytes;
}

/// Address of an element of a tensor; nullptr where the tensor is undefined.
inline std::byte* element(const Tensor& t, int64_t index) {
  return t.defined() ? static_cast<std::byte*>(t.data) + index * t.meta.element_bytes() : nullptr;
}

/// Rows of `width` elements per piece of work, so that a piece has about `elements` (at least one row).
inline int64_t row_grain(int64_t width, int64_t elements) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, width));
}

/// Columns per piece of work of a sum over rows: all of them for a small problem.
inline int64_t column_grain(int64_t rows, int64_t columns) {
  return rows * columns < 1 << 16 ? std::max<int64_t>(columns, 1) : 128;
}

/// kernel(args, begin, end) over ranges of at most `grain` that cover [0, n); in parallel.
template <class Args>
void parallel_kernel(int64_t n, int64_t grain, void (*kernel)(const Args&, int64_t, int64_t),
                     const Args& args) {
  parallel_for(n, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
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

/// Where a product writes (elements of) an input's gradient. A bf16 gradient that accumulates is formed in
/// fp32 in scratch and then added: a sum in bf16 cannot carry a chain.
struct ProductTarget {
  ProductTarget(const GradSlot& slot, void* scratch, int64_t first = 0)
      : result(element(slot.tensor, first)),
        in_scratch(needs_scratch(slot)),
        data(in_scratch ? scratch : result),
        type(in_scratch ? DType::f32 : slot.tensor.dtype()),
        accumulate(slot.accumulate && !in_scratch) {}
  static bool needs_scratch(const GradSlot& slot) {
    return slot.wanted() && slot.accumulate && slot.tensor.dtype() == DType::bf16;
  }
  /// Adds the n elements that the product wrote.
  void finish(int64_t n) const {
    if (in_scratch) copy_tensor(result, DType::bf16, data, DType::f32, n, true);
  }

  void* result;
  bool in_scratch;
  void* data;  ///< data, type, accumulate: of the product
  DType type;
  bool accumulate;
};
/// Scratch of an op that forms the gradient of input 0 by a ProductTarget.
inline int64_t product_scratch_bytes(const OpCall& call) {
  return !call.d_in.empty() && ProductTarget::needs_scratch(call.d_in[0]) ? call.d_in[0].tensor.numel() * 4
                                                                          : 0;
}

/// Each row of `to` (+)= the sum of the rows of `from` that its k indices name; see gather_rows.
inline void gather_tensor_rows(const GradSlot& to, const Tensor& from, const int32_t* index, int64_t k) {
  const DType from_type = from.rounded() ? DType::f32 : from.dtype();
  const GatherArgs args{to.tensor.data, to.tensor.dtype(), from.data,     from_type, index, k,
                        from.dim(1),    to.accumulate,     from.rounded()};
  constexpr int64_t kElements = 1 << 15;
  parallel_kernel(to.tensor.dim(0), row_grain(args.width * k, kElements), INGOT_ISA_CALL(gather_rows), args);
}

}  // namespace ingot
