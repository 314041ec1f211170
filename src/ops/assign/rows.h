// A row of sinkhorn's matrix: the text of the kernels of every instruction set and of GPUs.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/reduce.h"
#include "device/simd/vmath.h"
#include "ops/assign/isa_assign.h"

namespace ingot::INGOT_ISA {
namespace {

/// The costs of row t: exp(l - largest of the row).
INGOT_INLINE void put_costs(const AssignRows& a, int64_t t) {
  const float* l = a.logits + t * a.experts;
  const Vec top = set1(row_max(l, a.experts));
  each_vector(a.experts, [&](int64_t e, int count) {
    store_n(a.matrix + t * a.experts + e, vexp(load_n(l + e, count) - top), count);
  });
}

/// d0 of a row, from its costs and d1.
INGOT_INLINE float row_factor(const AssignRows& a, const float* cost) {
  return 1.0f / (static_cast<float>(a.rows) * (row_dot(cost, a.d1, a.experts) + 1e-8f));
}

}  // namespace
}  // namespace ingot::INGOT_ISA
