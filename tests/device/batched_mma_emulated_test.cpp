// Products of many matrices of bf16 on emulated tensor cores, and symmetric ones, by the instructions of all
// GPUs and by Hopper's: each output is one chain of fused multiply-adds, bit for bit, over several tiles and
// matrices, and what stands above the diagonal is what stands below it.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "device/gemm/gpu_tensor_cores.h"
#include "device/gpu/emulator.h"
#include "support/mma_operands.h"

namespace ingot::test::batched_mma_emulated_test {

constexpr int64_t kBatch = 3;
constexpr float kPlusFactor = -2.25f, kFactor = 1.625f;

class BatchedMmaProducts : public ::testing::TestWithParam<std::tuple<uint64_t, bool>> {
 protected:
  BatchedMmaProducts() {
    const auto [seed, hopper] = GetParam();
    set_emulation({.on = true, .seed = seed, .mma = true, .wgmma = hopper});
  }
  ~BatchedMmaProducts() override { set_emulation({}); }

  /// Launches of a kernel by Hopper's instructions so far.
  static int64_t launches(const char* kernel) { return emulated_launches()[kernel]; }
};
INSTANTIATE_TEST_SUITE_P(Seeds, BatchedMmaProducts,
                         ::testing::Combine(::testing::Values(1, 2), ::testing::Bool()));

/// The chain of output (i, j) of matrix e; `a_first` and `b_first`: where its rows and k begin.
struct MatrixPlace {
  int64_t row, k;
};
float chain_of(const MmaTestOperand& a, MatrixPlace a_first, const MmaTestOperand& b, MatrixPlace b_first,
               int64_t i, int64_t j, int64_t depth) {
  float sum = 0;
  for (int64_t k = 0; k < depth; ++k)
    sum = std::fma(a.upper(a_first.row + i, a_first.k + k), b.upper(b_first.row + j, b_first.k + k), sum);
  return sum;
}
/// With what is added to it.
float combined(float plus, float sum) {
  const float scaled = kPlusFactor * plus, product = kFactor * sum;
  return scaled + product;
}

/// Types of C, and whether something is added.
constexpr std::pair<DType, bool> kResults[] = {{DType::f32, false}, {DType::f32, true}, {DType::bf16, true}};

struct Size {
  int64_t m, n, k;
};

TEST_P(BatchedMmaProducts, AreOneChainForEachOutput) {
  const int64_t before = launches("batched_wgmma_product");
  int64_t hoppers = 0;
  for (const Size& s : {Size{136, 200, 72}, {8, 1032, 24}, {5, 66, 7}, {130, 64, 16}}) {
    const MmaTestOperand a(MmaOperand::bf16, kBatch * s.m, s.k, true, 0, 1),
        b(MmaOperand::bf16, s.n, kBatch * s.k, false, 0, 2),
        plus(MmaOperand::bf16, kBatch * s.m, s.n, true, 0, 3);
    hoppers += s.n % 8 == 0 && s.k % 8 == 0 ? 3 : 0;
    for (const auto& [type, adds] : kResults) {
      MmaTestResult c(kBatch * s.m * s.n, type);
      GpuBatchedMmaProduct p{product_of(a, b, s.m, s.n, s.k), kBatch, s.m * s.k, s.k * s.n, s.m * s.n};
      p.first.c = c.data(), p.first.c_type = type;
      if (adds) p.first.plus = static_cast<const bf16*>(plus.data());
      p.first.plus_factor = kPlusFactor, p.first.factor = kFactor;
      multiply_batch_on_tensor_cores(p);
      int64_t wrong = 0;
      for (int64_t e = 0; e < kBatch; ++e)
        for (int64_t i = 0; i < s.m; ++i)
          for (int64_t j = 0; j < s.n; ++j) {
            const float sum = chain_of(a, {e * s.m, 0}, b, {0, e * s.k}, i, j, s.k);
            const float expected = adds ? combined(plus.upper(e * s.m + i, j), sum) : sum;
            wrong += c.at((e * s.m + i) * s.n + j) != c.of(expected) ? 1 : 0;
          }
      EXPECT_EQ(wrong, 0) << s.m << "x" << s.n << "x" << s.k << ", adds " << adds;
      EXPECT_TRUE(c.ends_where_it_should());
    }
  }
  EXPECT_EQ(launches("batched_wgmma_product") - before, std::get<1>(GetParam()) ? hoppers : 0);
}

TEST_P(BatchedMmaProducts, OfSymmetricMatricesAreMirrored) {
  const int64_t before = launches("symmetric_wgmma_product");
  int64_t hoppers = 0;
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{264, 40}, {72, 200}, {65, 9}, {128, 16}})
    for (const bool along_k : {true, false}) {
      const MmaTestOperand x(MmaOperand::bf16, along_k ? kBatch * m : m, along_k ? k : kBatch * k, along_k, 0,
                             1);
      MmaTestOperand plus(MmaOperand::bf16, kBatch * m, m, true, 0, 3);
      for (int64_t e = 0; e < kBatch; ++e)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < i; ++j) plus.set(e * m + j, i, plus.upper(e * m + i, j));
      hoppers += m % 8 == 0 && k % 8 == 0 ? 3 : 0;
      for (const auto& [type, adds] : kResults) {
        MmaTestResult c(kBatch * m * m, type);
        GpuBatchedMmaProduct p{product_of(x, x, m, m, k), kBatch, m * k, m * k, m * m};
        p.first.c = c.data(), p.first.c_type = type;
        if (adds) p.first.plus = static_cast<const bf16*>(plus.data());
        p.first.plus_factor = kPlusFactor, p.first.factor = kFactor;
        multiply_symmetric_on_tensor_cores(p);
        int64_t wrong = 0;
        for (int64_t e = 0; e < kBatch; ++e)
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j <= i; ++j) {
              const MatrixPlace first = along_k ? MatrixPlace{e * m, 0} : MatrixPlace{0, e * k};
              const float sum = chain_of(x, first, x, first, i, j, k);
              const float expected = c.of(adds ? combined(plus.upper(e * m + i, j), sum) : sum);
              wrong += c.at((e * m + i) * m + j) != expected ? 1 : 0;
              wrong += c.at((e * m + j) * m + i) != expected ? 1 : 0;
            }
        EXPECT_EQ(wrong, 0) << m << "x" << k << ", along k " << along_k << ", adds " << adds;
        EXPECT_TRUE(c.ends_where_it_should());
      }
    }
  EXPECT_EQ(launches("symmetric_wgmma_product") - before, std::get<1>(GetParam()) ? hoppers : 0);
}

}  // namespace ingot::test::batched_mma_emulated_test
