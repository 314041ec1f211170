// Packed weights: products of few rows have the bits of every other product, int8 weights are the matrix of
// their rounded numbers, and kernels that do not read packed weights refuse them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "device/gemm/gemm.h"
#include "device/simd/isa.h"
#include "ops/linear/linear.h"
#include "tensor/convert.h"

namespace ingot::packed_weights_test {

std::vector<float> normal(int64_t count, uint64_t seed) {
  const Random random(seed, RandomPurpose::test);
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i)
    x.push_back(static_cast<float>(random.normal(static_cast<uint64_t>(i))));
  return x;
}

std::vector<bf16> narrow(const std::vector<float>& x) {
  std::vector<bf16> h;
  for (const float v : x) h.push_back(to_bf16(v));
  return h;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Runs the test once for each instruction set of this machine.
class PackedProducts : public ::testing::TestWithParam<Isa> {
 protected:
  PackedProducts() : before_(active_isa()) {
    if (isa_available(GetParam())) force_isa(GetParam());
  }
  ~PackedProducts() override { force_isa(before_); }
  void SetUp() override {
    if (!isa_available(GetParam())) GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }

 private:
  Isa before_;
};
INSTANTIATE_TEST_SUITE_P(Isas, PackedProducts, ::testing::ValuesIn(kEveryIsa),
                         [](const auto& i) { return isa_name(i.param); });

TEST_P(PackedProducts, Bf16ValuesStoredAsF32HaveTheBitsOfBf16) {
  for (const int64_t n : {1, 49, 301})
    for (const int64_t k : {1, 33, 128}) {
      const std::vector<float> w = normal(n * k, 1), x = normal(7 * k, 2);
      const std::vector<bf16> w_h = narrow(w);
      GemmArgs g;
      g.m = 7, g.n = n, g.k = g.lda = g.ldb = k;
      g.a = x.data(), g.b = w_h.data(), g.b_type = DType::bf16, g.b_transposed = true;
      std::vector<float> plain(static_cast<size_t>(7 * n)), few(plain.size());
      g.c = plain.data(), g.ldc = n;
      gemm(g);
      for (const bool rounds : {false, true}) {  // while it packs
        const PackedWeights packed({rounds ? static_cast<const void*>(w.data()) : w_h.data(),
                                    rounds ? DType::f32 : DType::bf16, rounds, true, k, n, k},
                                   DType::f32);
        g.packed = &packed;
        for (const int64_t rows : {7, 1}) {
          for (int64_t row = 0; row < 7; row += rows)
            g.m = rows, g.a = x.data() + row * k, g.c = few.data() + row * n, gemm(g);
          EXPECT_TRUE(same(plain, few)) << n << " x " << k << (rounds ? " rounded" : "") << " by " << rows;
          std::fill(few.begin(), few.end(), 0.0f);
        }
      }
    }
}

TEST_P(PackedProducts, FewRowsHaveTheBitsOfMany) {
  // 12 rows go through register tiles, parts of them through the kernel for few rows.
  for (const int64_t n : {1, 47, 48, 49, 301})
    for (const int64_t k : {0, 1, 2, 33, 127, 128, 129, 515}) {
      const std::vector<float> w = normal(n * k, 1), x = normal(12 * k, 2), bias = normal(n, 3);
      const std::vector<bf16> w_h = narrow(w), x_h = narrow(x);
      for (const DType stored : {DType::f32, DType::bf16, DType::u8})
        for (const DType a : {DType::f32, DType::bf16}) {
          const bool pairs = stored == DType::bf16;
          const PackedWeights packed({pairs ? static_cast<const void*>(w_h.data()) : w.data(),
                                      pairs ? DType::bf16 : DType::f32, false, true, k, n, k},
                                     stored);
          const auto product = [&](int64_t first, int64_t rows, float* c) {
            GemmArgs g;
            g.m = rows, g.n = n, g.k = g.lda = k;
            g.a = a == DType::bf16 ? static_cast<const void*>(x_h.data() + first * k) : x.data() + first * k;
            g.a_type = a;
            g.packed = &packed;
            g.c = c, g.ldc = n;
            g.bias = bias.data();
            gemm(g);
          };
          std::vector<float> many(static_cast<size_t>(12 * n)), few(many.size());
          product(0, 12, many.data());
          for (int64_t row = 0, rows = 1; row < 12; row += rows, rows = rows % 5 + 1)
            product(row, std::min<int64_t>(rows, 12 - row), few.data() + row * n);
          EXPECT_TRUE(same(many, few)) << n << " x " << k << " " << name_of(stored) << " by " << name_of(a);
        }
    }
}

TEST_P(PackedProducts, Int8IsTheMatrixOfItsRoundedNumbers) {
  for (const int64_t k : {1, 128, 300}) {
    constexpr int64_t kColumns = 53;
    std::vector<float> w = normal(kColumns * k, 4);
    const std::vector<float> x = normal(7 * k, 5);
    for (int64_t i = 0; i < k; ++i) w[static_cast<size_t>(3 * k + i)] = 0;           // a column of zeros
    for (int64_t i = 0; i < k; ++i) w[static_cast<size_t>(4 * k + i)] *= 0x1p-120f;  // as good as zeros
    for (int64_t i = 0; i < k; ++i) w[static_cast<size_t>(5 * k + i)] *= 0x1p100f;
    const PackedWeights packed({w.data(), DType::f32, false, true, k, kColumns, k}, DType::u8);
    std::vector<float> rounded(w.size());
    for (int64_t n = 0; n < kColumns; ++n) packed.column(0, n, rounded.data() + n * k);
    for (int64_t n = 0; n < kColumns; ++n)
      for (int64_t k0 = 0; k0 < k; k0 += kInt8Block) {
        float most = 0;
        const int64_t end = std::min(k, k0 + kInt8Block);
        for (int64_t i = n * k + k0; i < n * k + end; ++i)
          most = std::max(most, std::fabs(w[static_cast<size_t>(i)]));
        for (int64_t i = n * k + k0; i < n * k + end; ++i) {
          const auto at = static_cast<size_t>(i);
          if (n == 4)
            EXPECT_EQ(rounded[at], 0);
          else
            EXPECT_LE(std::fabs(rounded[at] - w[at]), most / 127 * 0.5001f)
                << "column " << n << ", k " << i - n * k;
        }
      }
    std::vector<float> y(static_cast<size_t>(7 * kColumns)), expected(y.size());
    GemmArgs g;
    g.m = 7, g.n = kColumns, g.k = g.lda = g.ldb = k;
    g.a = x.data();
    g.b = rounded.data(), g.b_transposed = true;
    g.c = expected.data(), g.ldc = kColumns;
    gemm(g);
    g.packed = &packed;
    g.c = y.data();
    gemm(g);
    EXPECT_TRUE(same(y, expected)) << k;
  }
}

TEST_P(PackedProducts, ExpertsOfFewRowsHaveTheBitsOfMany) {
  constexpr int64_t kExperts = 5, kN = 50, kK = 130, kRows = 16;
  const std::vector<float> w = normal(kExperts * kN * kK, 6), x = normal(kRows * kK, 7);
  const std::vector<bf16> w_h = narrow(w), x_h = narrow(x);
  for (const DType stored : {DType::f32, DType::bf16, DType::u8}) {
    const bool pairs = stored == DType::bf16;
    const PackedWeights packed({pairs ? static_cast<const void*>(w_h.data()) : w.data(),
                                pairs ? DType::bf16 : DType::f32, false, true, kK, kN, kK, kExperts, kN * kK},
                               stored);
    for (const std::vector<int64_t>& offsets : {std::vector<int64_t>{0, 0, 1, 5, 5, 8},
                                                {0, 4, 8, 12, 16, 16},
                                                {0, 0, 0, 0, 0, 1},
                                                {2, 2, 3, 4, 5, 9}}) {
      std::vector<float> few(static_cast<size_t>(kRows * kN), -1.0f), one(few);
      GroupedGemmArgs g;
      g.experts = kExperts, g.offsets = offsets.data(), g.n = kN, g.k = g.lda = kK;
      g.a = pairs ? static_cast<const void*>(x_h.data()) : x.data(),
      g.a_type = pairs ? DType::bf16 : DType::f32;
      g.packed = &packed;
      g.c = few.data(), g.ldc = kN;
      gemm_grouped(g);
      // Each row beside eleven others of the same expert: too many for the kernel of few rows.
      for (int64_t e = 0; e < kExperts; ++e)
        for (int64_t r = offsets[static_cast<size_t>(e)]; r < offsets[static_cast<size_t>(e) + 1]; ++r) {
          std::vector<float> rows, out(static_cast<size_t>(12 * kN));
          for (int i = 0; i < 12; ++i) rows.insert(rows.end(), x.begin() + r * kK, x.begin() + (r + 1) * kK);
          const std::vector<bf16> rows_h = narrow(rows);
          std::vector<int64_t> all(kExperts + 1);
          for (int64_t i = 0; i <= kExperts; ++i) all[static_cast<size_t>(i)] = i <= e ? 0 : 12;
          GroupedGemmArgs h = g;
          h.offsets = all.data();
          h.a = pairs ? static_cast<const void*>(rows_h.data()) : rows.data();
          h.c = out.data();
          gemm_grouped(h);
          std::copy(out.begin(), out.begin() + kN, one.begin() + r * kN);
        }
      EXPECT_TRUE(same(few, one)) << name_of(stored) << " " << offsets[1] << "," << offsets[2];
    }
  }
}

/// A linear op whose only fast kernel reads the given formats of its weight.
Op linear_reading(const ReadableFormats& formats) {
  Op op = linear_op();
  op.kernels.front().formats = formats;
  return op;
}

TEST(WeightFormats, AKernelThatDoesNotReadAFormatRefusesItByName) {
  const std::vector<float> w = normal(6, 8), x = normal(3, 9);
  const PackedWeights packed({w.data(), DType::f32, false, true, 3, 2, 3}, DType::f32);
  const WeightFormat format{"packed f32", &packed};
  float y[2];
  const LinearAttr attr{DType::f32};
  const Tensor in[] = {Tensor::of(x.data(), {1, 3}), Tensor(nullptr, {{2, 3}, DType::f32, &format}), {}};
  const Tensor out[] = {Tensor::of(y, {1, 2})},
               rounded(const_cast<float*>(w.data()), {{2, 3}, DType::bf16, &kRoundedWeight});
  const OpCall call{&attr, in, out, {}, {}};
  EXPECT_STREQ(select_kernel(linear_op(), call).name, "cpu");
  EXPECT_EQ(to_doubles(in[1]), std::vector<double>(w.begin(), w.end()));
  const auto message = [](const Op& op, const OpCall& c) {
    try {
      select_kernel(op, c);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(linear_reading({.rounded = slot_bit(1)}), call).find("its weight is packed f32"),
            std::string::npos);
  const Tensor in_rounded[] = {in[0], rounded, {}};
  const OpCall call_rounded{&attr, in_rounded, out, {}, {}};
  EXPECT_STREQ(select_kernel(linear_op(), call_rounded).name, "cpu");
  EXPECT_NE(message(linear_reading({.packed = slot_bit(1)}), call_rounded)
                .find("its weight is f32 rounded to bf16"),
            std::string::npos);
  // No kernel has a backward through packed weights.
  const Tensor d_out[] = {out[0]};
  EXPECT_NE(message(linear_op(), {&attr, in, out, d_out, {}}).find("its weight is packed f32"),
            std::string::npos);
  // A weight in a format is no activation, and has no elements to point to.
  const Tensor swapped[] = {in[1], in[1], {}};
  EXPECT_THROW(select_kernel(linear_op(), {&attr, swapped, out, {}, {}}), InternalError);
  EXPECT_THROW(in[1].as<float>(), InternalError);
  EXPECT_THROW(rounded.as<bf16>(), InternalError);
  EXPECT_THROW(in[1].slice(0, 1), InternalError);
}

}  // namespace ingot::packed_weights_test
