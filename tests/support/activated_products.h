// Products on emulated tensor cores that activate what they store, beside those whose rows the kernel of the
// op `activation` reads afterwards.
#pragma once
#include <cstring>
#include <vector>

#include "ops/activation/gpu_activation.h"
#include "support/mma_operands.h"

namespace ingot::test {

inline constexpr ActivationFunction kProductActivations[] = {
    ActivationFunction::gelu, ActivationFunction::gelu_tanh, ActivationFunction::relu2,
    ActivationFunction::silu};

/// Whether C = A B + bias and its function, rows `beyond` elements more than n apart, have the same bits both
/// ways, and nothing between and behind their rows is touched.
template <class Launch>
bool activated_as_rows_are(Launch&& multiply, const MmaTestOperand& a, const MmaTestOperand& b, int64_t m,
                           int64_t n, int64_t k, int64_t beyond, ActivationFunction function) {
  const int64_t stride = n + beyond;
  std::vector<float> bias(static_cast<size_t>(n));
  for (size_t j = 0; j < bias.size(); ++j) bias[j] = 0.01f * static_cast<float>(j);
  MmaTestResult results[4] = {{m * stride, DType::bf16},
                              {m * stride, DType::bf16},
                              {m * stride, DType::bf16},
                              {m * stride, DType::bf16}};
  auto &y = results[0], &activated = results[1], &alone = results[2], &afterwards = results[3];
  GpuMmaProduct p = product_of(a, b, m, n, k);
  p.c_row = stride, p.c_type = DType::bf16, p.bias = bias.data();
  p.c = alone.data();
  multiply(p);
  for (int64_t i = 0; i < m; ++i) {
    ActivationRows rows{};
    rows.function = function, rows.width = n, rows.x_type = rows.y_type = DType::bf16;
    rows.x = static_cast<bf16*>(alone.data()) + i * stride;
    rows.y = static_cast<bf16*>(afterwards.data()) + i * stride;
    INGOT_GPU_CALL(launch_activation_forward)({}, rows, 1, nullptr);
  }
  p.c = y.data(), p.activated = static_cast<bf16*>(activated.data()), p.activation = function;
  multiply(p);
  const auto bytes = static_cast<size_t>(m * stride) * sizeof(bf16);
  return std::memcmp(y.data(), alone.data(), bytes) == 0 &&
         std::memcmp(activated.data(), afterwards.data(), bytes) == 0 && y.ends_where_it_should() &&
         activated.ends_where_it_should();
}

}  // namespace ingot::test
