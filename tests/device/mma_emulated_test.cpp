// Products of bf16 on tensor cores, emulated: each output is one chain of fused multiply-adds in the order
// that gpu_product.h says, bit for bit, for every type and layout in memory, over several tiles, in groups,
// whatever stands beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "device/gemm/gpu_product.h"
#define INGOT_ISA emulated
#define INGOT_ISA_gpu 1
#define INGOT_ISA_emulated 1
#include "device/gpu/mma.h"
#include "support/activated_products.h"
#include "support/capped_products.h"

namespace ingot::test::mma_emulated_test {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class MmaProducts : public ::testing::Test {
 protected:
  MmaProducts() { set_emulation({.on = true, .seed = 4, .mma = true}); }
  ~MmaProducts() override { set_emulation({}); }
};

void one_product(const uint32_t* a, const uint32_t* b, float* to) {
  using namespace emulated;
  MmaSums sums;
  for (int i = 0; i < kMmaSums; ++i) sums.x[i] = to[row_of_sum(i) * kMmaColumns + column_of_sum(i)];
  add_product(sums, mma_rows(a, kMmaPairs + 1), mma_columns(b, kMmaPairs + 1));
  for (int i = 0; i < kMmaSums; ++i) to[row_of_sum(i) * kMmaColumns + column_of_sum(i)] = sums.x[i];
}

TEST_F(MmaProducts, AnInstructionTakesPairsAlongKAndGivesEachOutputItsChain) {
  const MmaTestOperand a(MmaOperand::bf16, 16, 16, true, 2, 1), b(MmaOperand::bf16, 8, 16, true, 2, 2);
  std::vector<uint32_t> pairs_of_a(16 * 9), pairs_of_b(8 * 9);
  std::memcpy(pairs_of_a.data(), a.data(), pairs_of_a.size() * 4);
  std::memcpy(pairs_of_b.data(), b.data(), pairs_of_b.size() * 4);
  std::vector<float> sums(128, 0.75f);
  emulated::launch("one_product", one_product, {1, 32}, {}, pairs_of_a.data(), pairs_of_b.data(),
                   sums.data());
  for (int64_t i = 0; i < 16; ++i)
    for (int64_t j = 0; j < 8; ++j) {
      float sum = 0.75f;
      for (int64_t k = 0; k < 16; ++k) sum = std::fma(a.upper(i, k), b.upper(j, k), sum);
      EXPECT_EQ(sums[static_cast<size_t>(i * 8 + j)], sum) << i << " " << j;
    }
}

void half_a_product(const uint32_t* a, const uint32_t* b, float* to) {
  if (emulated::thread_index() < 16) one_product(a, b, to);
}

TEST_F(MmaProducts, AnInstructionThatNotAllThreadsReachIsADeadlock) {
  const std::vector<uint32_t> pairs(16 * 9);
  std::vector<float> sums(128);
  for (const int threads : {32, 16}) try {
      emulated::launch("half", half_a_product, {1, threads}, {}, pairs.data(), pairs.data(), sums.data());
      ADD_FAILURE() << "no error";
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find(threads == 32 ? "deadlock" : "a group of 16, not 32"),
                std::string::npos)
          << e.what();
    }
}

TEST_F(MmaProducts, AreOneChainForEachOutput) {
  struct Size {
    int64_t m, n, k, beyond;
  };
  for (const Size& s :
       {Size{1, 1, 1, 0}, {3, 2, 40, 0}, {130, 5, 33, 1}, {7, 150, 31, 3}, {70, 72, 96, 8}, {2, 3, 0, 0}})
    for (const MmaOperand a_is : {MmaOperand::bf16, MmaOperand::rounded, MmaOperand::split})
      for (const MmaOperand b_is : {MmaOperand::bf16, MmaOperand::rounded})
        for (const int layout : {0, 1, 2, 3}) {
          const MmaTestOperand a(a_is, s.m, s.k, (layout & 1) != 0, s.beyond, 1),
              b(b_is, s.n, s.k, (layout & 2) != 0, s.beyond, 2);
          const DType type = layout == 1 || layout == 2 ? DType::bf16 : DType::f32;
          std::vector<float> bias(static_cast<size_t>(s.n));
          for (size_t j = 0; j < bias.size(); ++j) bias[j] = 0.01f * static_cast<float>(j);
          for (const bool accumulate : {false, true}) {
            MmaTestResult c(s.m * s.n, type);
            GpuMmaProduct p = product_of(a, b, s.m, s.n, s.k);
            p.c = c.data(), p.c_type = type, p.accumulate = accumulate;
            if (layout > 1) p.bias = bias.data();
            INGOT_GPU_CALL(launch_mma_product)({}, p);
            int64_t wrong = 0;
            for (int64_t i = 0; i < s.m; ++i)
              for (int64_t j = 0; j < s.n; ++j) {
                float sum = chain(a, b, i, j, 0, s.k);
                if (accumulate) sum = 0.5f + sum;
                if (layout > 1) sum += bias[static_cast<size_t>(j)];
                wrong += c.at(i * s.n + j) != c.of(sum) ? 1 : 0;
              }
            EXPECT_EQ(wrong, 0) << fmt::format("{}x{}x{} of {} and {}, layout {}, accumulate {}", s.m, s.n,
                                               s.k, static_cast<int>(a_is), static_cast<int>(b_is), layout,
                                               accumulate);
            EXPECT_TRUE(c.ends_where_it_should());
          }
        }
}

TEST_F(MmaProducts, CappedHaveTheBitsOfRowsThatAreCappedAfterwards) {
  struct Size {
    int64_t m, n, k, beyond;
  };
  for (const Size& s : {Size{1, 1, 1, 0}, {3, 150, 40, 3}, {130, 5, 33, 1}, {70, 72, 96, 0}, {2, 3, 0, 2}})
    for (const MmaOperand b_is : {MmaOperand::bf16, MmaOperand::rounded})
      for (const MmaTestCap& by : kMmaTestCaps) {
        const MmaTestOperand a(MmaOperand::bf16, s.m, s.k, true, s.beyond, 1),
            b(b_is, s.n, s.k, true, s.beyond, 2);
        EXPECT_TRUE(capped_as_rows_are(
            [](const GpuMmaProduct& p) {
              INGOT_GPU_CALL(launch_mma_product)
              ({}, p);
            },
            a, b, s.m, s.n, s.k, s.beyond, by))
            << fmt::format("{}x{}x{}, cap {}, scale {}", s.m, s.n, s.k, by.cap.cap, by.scale);
      }
}

TEST_F(MmaProducts, ActivatedHaveTheBitsOfRowsThatAreActivatedAfterwards) {
  struct Size {
    int64_t m, n, k, beyond;
  };
  for (const Size& s : {Size{1, 1, 1, 0}, {3, 150, 40, 3}, {130, 5, 33, 1}, {70, 72, 96, 0}, {2, 3, 0, 2}})
    for (const MmaOperand b_is : {MmaOperand::bf16, MmaOperand::rounded})
      for (const ActivationFunction function : kProductActivations) {
        const MmaTestOperand a(MmaOperand::bf16, s.m, s.k, true, s.beyond, 1),
            b(b_is, s.n, s.k, true, s.beyond, 2);
        EXPECT_TRUE(activated_as_rows_are(
            [](const GpuMmaProduct& p) {
              INGOT_GPU_CALL(launch_mma_product)
              ({}, p);
            },
            a, b, s.m, s.n, s.k, s.beyond, function))
            << fmt::format("{}x{}x{}, function {}", s.m, s.n, s.k, static_cast<int>(function));
      }
}

TEST_F(MmaProducts, OfGroupsOfRowsAreOneChainForEachOutput) {
  constexpr int64_t kN = 20, kK = 24, kGroups = 5;
  for (const MmaOperand a_is : {MmaOperand::bf16, MmaOperand::split})
    for (const MmaOperand b_is : {MmaOperand::bf16, MmaOperand::rounded})
      for (const bool along_k : {false, true}) {
        const MmaTestOperand a(a_is, kMmaGroupedRows, kK, true, 0, 1),
            b(b_is, along_k ? kGroups * kN : kN, along_k ? kK : kGroups * kK, along_k, 0, 2);
        MmaTestResult c(kMmaOffsets.back() * kN, DType::bf16);
        GpuGroupedMmaProduct g{product_of(a, b, kMmaGroupedRows, kN, kK), kMmaOffsets.data(), kGroups,
                               kN * kK};
        g.product.c = c.data(), g.product.c_type = DType::bf16;
        INGOT_GPU_CALL(launch_grouped_mma_rows)({}, g);
        int64_t wrong = 0;
        for (size_t e = 0; e < kGroups; ++e)
          for (int64_t i = kMmaOffsets[e]; i < kMmaOffsets[e + 1]; ++i)
            for (int64_t j = 0; j < kN; ++j) {
              // B's of the groups stand behind each other, along columns or along k.
              const auto group = static_cast<int64_t>(e);
              float sum = 0;
              for (int64_t first = 0; first < kK; first += 16)
                for (const bool lower : {false, true})
                  for (int64_t k = first;
                       k < std::min(first + 16, kK) && (!lower || a_is == MmaOperand::split); ++k)
                    sum = std::fma(lower ? a.lower(i, k) : a.upper(i, k),
                                   along_k ? b.upper(group * kN + j, k) : b.upper(j, group * kK + k), sum);
              wrong += c.at(i * kN + j) != rounded(sum) ? 1 : 0;
            }
        EXPECT_EQ(wrong, 0) << static_cast<int>(a_is) << static_cast<int>(b_is) << along_k;
        EXPECT_TRUE(c.ends_where_it_should()) << "rows behind the last group's";
      }
}

TEST_F(MmaProducts, OfGroupsAlongKCountItFromTheirFirstRow) {
  constexpr int64_t kM = 6, kN = 9, kGroups = 5;
  for (const MmaOperand a_is : {MmaOperand::bf16, MmaOperand::split})
    for (const bool accumulate : {false, true}) {
      const MmaTestOperand a(a_is, kM, kMmaGroupedRows, false, 0, 1),
          b(MmaOperand::bf16, kN, kMmaGroupedRows, false, 0, 2);
      MmaTestResult c(kGroups * kM * kN, DType::f32);
      GpuGroupedMmaProduct g{product_of(a, b, kM, kN, kMmaGroupedRows), kMmaOffsets.data(), kGroups, kM * kN};
      g.product.c = c.data(), g.product.accumulate = accumulate;
      INGOT_GPU_CALL(launch_grouped_mma_depth)({}, g);
      for (size_t e = 0; e < kGroups; ++e)
        for (int64_t i = 0; i < kM; ++i)
          for (int64_t j = 0; j < kN; ++j) {
            const float sum = chain(a, b, i, j, kMmaOffsets[e], kMmaOffsets[e + 1]);
            ASSERT_EQ(c.at((static_cast<int64_t>(e) * kM + i) * kN + j), accumulate ? 0.5f + sum : sum) << e;
          }
      EXPECT_TRUE(c.ends_where_it_should());
    }
}

std::vector<float> rows_of(const MmaTestOperand& a, const MmaTestOperand& b, int64_t begin, int64_t count,
                           int64_t n, int64_t k) {
  return mma_rows_of(
      [](const GpuMmaProduct& p) {
        INGOT_GPU_CALL(launch_mma_product)
        ({}, p);
      },
      a, b, begin, count, n, k);
}

TEST_F(MmaProducts, OfARowDoNotDependOnOthers) {
  constexpr int64_t kM = 150, kN = 40, kK = 70;
  MmaTestOperand a(MmaOperand::bf16, kM, kK, true, 2, 1);
  const MmaTestOperand b(MmaOperand::bf16, kN, kK, true, 0, 2);
  const std::vector<float> all = rows_of(a, b, 0, kM, kN, kK);
  const auto compare = [&](int64_t begin, int64_t count, const char* what) {
    const std::vector<float> some = rows_of(a, b, begin, count, kN, kK);
    EXPECT_EQ(0, std::memcmp(some.data(), all.data() + begin * kN, some.size() * sizeof(float))) << what;
  };
  for (const int64_t count : {1, 7, 64, 129}) compare(kM - count, count, "the last rows");
  for (int64_t i = 0; i < kM; ++i)
    for (int64_t k = 0; k < kK && i != 75; ++k) a.set(i, k, kNaN);
  compare(75, 1, "alone");
  const std::vector<float> beside = rows_of(a, b, 0, kM, kN, kK);
  EXPECT_EQ(0, std::memcmp(beside.data() + 75 * kN, all.data() + 75 * kN, kN * sizeof(float)))
      << "beside NaN";
  EXPECT_TRUE(std::isnan(beside[74 * kN]) && std::isnan(beside[76 * kN]));
}

TEST_F(MmaProducts, WouldHaveOtherBitsWereTheChainBroken) {
  constexpr int64_t kN = 40, kK = 256;
  const MmaTestOperand a(MmaOperand::bf16, 1, kK, true, 0, 1), b(MmaOperand::bf16, kN, kK, true, 0, 2);
  const std::vector<float> whole = rows_of(a, b, 0, 1, kN, kK);
  int others = 0;
  for (int64_t j = 0; j < kN; ++j) {
    const float halves = chain(a, b, 0, j, 0, kK / 2) + chain(a, b, 0, j, kK / 2, kK);
    others += halves != whole[static_cast<size_t>(j)] ? 1 : 0;
    EXPECT_NEAR(halves, whole[static_cast<size_t>(j)], 1e-4f);
  }
  EXPECT_GT(others, kN / 2);
}

TEST_F(MmaProducts, OfInfinityAreNotNaNWhereItIsSplit) {
  constexpr int64_t kK = 5;
  MmaTestOperand a(MmaOperand::split, 1, kK, true, 0, 1), b(MmaOperand::bf16, 1, kK, true, 0, 2);
  a.set(0, 3, std::numeric_limits<float>::infinity());
  b.set(0, 3, 2.0f);
  EXPECT_EQ(rows_of(a, b, 0, 1, 1, kK)[0], std::numeric_limits<float>::infinity());
}

}  // namespace ingot::test::mma_emulated_test
