// Products on emulated tensor cores that are capped as they are stored, beside those whose rows the kernel of
// the op `head` caps afterwards.
#pragma once
#include <cstring>

#include "ops/head/gpu_head.h"
#include "support/mma_operands.h"

namespace ingot::test {

/// What products are capped by, and scaled: a cap alone, a scale alone, both.
struct MmaTestCap {
  SoftCapFactors cap;
  float scale;
};
inline const MmaTestCap kMmaTestCaps[] = {{{2, 0.5f, 0}, 1}, {{}, 1.75f}, {{3, 0.4f, 1.5f}, 0.6f}};

/// Whether C = A B, rows `beyond` floats more than n apart, has the same bits both ways, and nothing between
/// and behind its rows is touched.
template <class Launch>
bool capped_as_rows_are(Launch&& multiply, const MmaTestOperand& a, const MmaTestOperand& b, int64_t m,
                        int64_t n, int64_t k, int64_t beyond, const MmaTestCap& by) {
  const int64_t stride = n + beyond;
  MmaTestResult in_product(m * stride, DType::f32), afterwards(m * stride, DType::f32);
  GpuMmaProduct p = product_of(a, b, m, n, k);
  p.c_row = stride;
  p.c = afterwards.data();
  multiply(p);
  INGOT_GPU_CALL(launch_head_logits)
  ({}, {static_cast<float*>(afterwards.data()), stride, n, by.cap, by.scale}, m);
  p.c = in_product.data(), p.cap = by.cap, p.scale = by.scale;
  multiply(p);
  const auto bytes = static_cast<size_t>(m * stride) * sizeof(float);
  return std::memcmp(in_product.data(), afterwards.data(), bytes) == 0 && in_product.ends_where_it_should();
}

}  // namespace ingot::test
