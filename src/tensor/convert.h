// Converts whole tensors to vectors of doubles or ints, and back: for metrics, logits, checkpoints, dumps and
// reference kernels. Tensors of a device are read by way of a copy. Widening to double is exact; storing
// rounds to nearest even, to bf16 by way of f32. One thread, one element after the other.
#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace ingot {

/// All elements of a floating tensor (f32, bf16 or f64, weights in every format); empty for an undefined
/// tensor.
std::vector<double> to_doubles(const Tensor& t);
/// All elements of an i32 tensor; empty for an undefined tensor.
std::vector<int32_t> to_ints(const Tensor& t);
/// Rounds `values` into a floating tensor of as many elements.
void store_rounded(const Tensor& t, const std::vector<double>& values);
/// to = from, both floating, of as many elements.
inline void convert(const Tensor& from, const Tensor& to) {
  store_rounded(to, to_doubles(from));
}

}  // namespace ingot
