// device/gemm: every result has the bits of the naive loop over its chain, for all layouts, types,
// instruction sets.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/philox.h"
#include "device/gemm/gemm.h"
#include "device/simd/isa.h"
#include "support/product_chain.h"

namespace ingot::gemm_ops_test {

using test::chain;

/// A matrix in f32, bf16 or f32 that counts as bf16, with a row stride larger than its width; rows beyond are
/// poisoned with NaN.
struct Matrix {
  Matrix(int64_t rows, int64_t cols, DType type, uint64_t seed, bool rounded = false, int64_t unused = 3)
      : cols(cols), ld(cols + unused), type(type), rounded(rounded) {
    f.assign(static_cast<size_t>(rows * ld + 1), std::nanf(""));
    h.resize(f.size());
    const Random random(seed, RandomPurpose::test);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) at(r, c) = random.normal(static_cast<uint64_t>(r * cols + c));
    sync();
  }
  float& at(int64_t r, int64_t c) { return f[static_cast<size_t>(r * ld + c)]; }
  float value(int64_t r, int64_t c) const {
    const auto i = static_cast<size_t>(r * ld + c);
    return type == DType::bf16 || rounded ? to_float(h[i]) : f[i];
  }
  void sync() {
    for (size_t i = 0; i < f.size(); ++i) h[i] = to_bf16(f[i]);
  }
  void* data() { return type == DType::bf16 ? static_cast<void*>(h.data()) : static_cast<void*>(f.data()); }

  int64_t cols, ld;
  DType type;
  bool rounded;
  std::vector<float> f;
  std::vector<bf16> h;
};

uint32_t bits(float x) {
  return std::bit_cast<uint32_t>(x);
}

struct Case {
  int64_t m, n, k;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool ta = false, tb = false, accumulate = false, bias = false, packed = false, round_b = false;
  int64_t unused_of_a = 3;  ///< columns between rows

  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " " + name_of(a) +
           name_of(b) + (round_b ? " rounded " : "") + name_of(c) + (ta ? " ta" : "") + (tb ? " tb" : "") +
           (accumulate ? " acc" : "") + (bias ? " bias" : "") + (packed ? " packed" : "") + " " +
           isa_name(active_isa());
  }
};

void check(const Case& t) {
  SCOPED_TRACE(t.name());
  Matrix a(t.ta ? t.k : t.m, t.ta ? t.m : t.k, t.a, 1, false, t.unused_of_a);
  Matrix b(t.tb ? t.n : t.k, t.tb ? t.k : t.n, t.b, 2, t.round_b);
  Matrix c(t.m, t.n, t.c, 3);
  Matrix bias(1, t.n, t.b, 4);
  const Matrix before = c;
  GemmArgs args{t.m,
                t.n,
                t.k,
                a.data(),
                t.a,
                t.ta,
                a.ld,
                b.data(),
                t.b,
                t.tb,
                b.ld,
                nullptr,
                c.data(),
                t.c,
                c.ld,
                t.accumulate,
                t.bias ? bias.data() : nullptr,
                t.b,
                t.round_b};
  if (t.packed) {
    const PackedWeights packed({b.data(), t.b, t.round_b, t.tb, t.k, t.n, b.ld},
                               t.round_b ? DType::bf16 : t.b);
    args.packed = &packed;
    args.b = nullptr;
    gemm(args);
  } else {
    gemm(args);
  }
  for (int64_t i = 0; i < t.m; ++i) {
    for (int64_t j = 0; j < t.n; ++j) {
      float acc = chain(
          t.a == DType::bf16 && (t.b == DType::bf16 || t.round_b), t.k,
          t.accumulate ? before.value(i, j) : 0.0f,
          [&](int64_t k) { return t.ta ? a.value(k, i) : a.value(i, k); },
          [&](int64_t k) { return t.tb ? b.value(j, k) : b.value(k, j); });
      if (t.bias) acc += bias.value(0, j);
      if (t.c == DType::bf16) acc = to_float(to_bf16(acc));
      ASSERT_EQ(bits(c.value(i, j)), bits(acc))
          << i << "," << j << ": " << c.value(i, j) << " expected " << acc;
    }
    for (int64_t j = t.n; j < c.ld; ++j)
      ASSERT_TRUE(std::isnan(c.value(i, j))) << "wrote beyond column " << t.n;
  }
}

/// Runs the test once per instruction set of this machine, and puts the best one back.
class Gemm : public ::testing::Test {
 protected:
  Gemm() : before_(active_isa()) {}
  ~Gemm() override { force_isa(before_); }
  template <class F>
  void each_isa(F&& f) {
    for (const Isa isa : kEveryIsa)
      if (isa_available(isa)) {
        force_isa(isa);
        f();
      }
  }

 private:
  Isa before_;
};

TEST_F(Gemm, AllLayoutsAndTypes) {
  each_isa([] {
    for (const DType a : {DType::f32, DType::bf16})
      for (const auto& [b, round] : {std::pair{DType::f32, false}, {DType::bf16, false}, {DType::f32, true}})
        for (const DType c : {DType::f32, DType::bf16})
          for (int flags = 0; flags < 16; ++flags)
            for (const bool tall :
                 {false, true}) {  // a tall TN is computed by its transpose, as is NT of few rows
              Case t{tall ? 61 : 13,
                     tall ? 13 : 61,
                     37,
                     a,
                     b,
                     c,
                     (flags & 1) != 0,
                     (flags & 2) != 0,
                     false,
                     (flags & 4) != 0,
                     (flags & 8) != 0,
                     round};
              check(t);
              if (c == DType::f32) {
                t.accumulate = true;
                check(t);
              }
            }
  });
}

TEST_F(Gemm, OddShapes) {
  each_isa([] {
    for (const int64_t m : {0, 1, 2, 3, 5, 8, 9, 31})
      for (const int64_t n : {0, 1, 15, 16, 17, 47, 48, 49, 97})
        for (const int64_t k : {0, 1, 7, 33}) {
          check({m, n, k, DType::f32, DType::f32, DType::f32, false, true, false, true});
          check({m, n, k, DType::f32, DType::f32, DType::f32, true, false, true});
          check({m, n, k, DType::bf16, DType::bf16, DType::f32, false, true, false, true});
          check({m, n, k, DType::bf16, DType::bf16, DType::f32, true, false, true});
          check({m, n, k, DType::bf16, DType::bf16, DType::f32, false, true, true, false, true});
          check({m, n, k, DType::bf16, DType::f32, DType::f32, false, true, false, true, false, true});
          check({.m = m, .n = n, .k = k, .a = DType::bf16, .c = DType::bf16, .round_b = true});
        }
  });
}

TEST_F(Gemm, WeightsThatCountAsBf16HaveTheBitsOfTheirCopies) {
  // Ties, both neighbours of the smallest normal number, overflow into infinity, and NaN with any payload.
  const uint32_t special[] = {0x3F808000u, 0x3F818000u, 0x3F80FFFFu, 0x007FFFFFu, 0x007F8000u,
                              0x007F7FFFu, 0x00000001u, 0x80008000u, 0x7F7FFFFFu, 0xFF7FFFFFu,
                              0x7F800000u, 0x7FC00000u, 0x7F800001u, 0xFFFFFFFFu};
  each_isa([&] {
    const int64_t m = 9, n = 83, k = 41;
    Matrix copy(n, k, DType::bf16, 2), master(n, k, DType::f32, 2, true);
    for (int64_t j = 0; j < n; ++j) {
      const float x = std::bit_cast<float>(special[static_cast<size_t>(j) % std::size(special)]);
      copy.at(j, j % k) = master.at(j, j % k) = x;
    }
    copy.sync();
    for (const bool transposed : {false, true})
      for (const DType a_type : {DType::bf16, DType::f32}) {
        Matrix left(m, transposed ? k : n, a_type, 1), with_copy(m, transposed ? n : k, DType::f32, 3),
            with_master = with_copy;
        GemmArgs args{m,       with_copy.cols, left.cols,        left.data(), a_type,
                      false,   left.ld,        copy.data(),      DType::bf16, transposed,
                      copy.ld, nullptr,        with_copy.data(), DType::f32,  with_copy.ld};
        gemm(args);
        args.b = master.data(), args.b_type = DType::f32, args.round_b = true, args.c = with_master.data();
        gemm(args);
        for (size_t i = 0; i < with_copy.f.size(); ++i)
          ASSERT_EQ(bits(with_master.f[i]), bits(with_copy.f[i])) << i << isa_name(active_isa());
      }
  });
}

TEST_F(Gemm, LongChainsCrossEveryBlock) {
  each_isa([] {
    const bool slow = active_isa() == Isa::generic;
    for (const int64_t k : {511, 512, 513, 1030, 2049, 5000}) {
      const int64_t m = slow ? 3 : 19;
      check({m, 50, k});
      check({m, 50, k, DType::bf16, DType::f32, DType::bf16, false, true, false, true});
      check({m, 50, k, DType::f32, DType::bf16, DType::f32, true, false, true});
      check({m, 50, k, DType::f32, DType::bf16, DType::bf16, false, true, false, false, true});
      check({m, 50, k, DType::f32, DType::f32, DType::f32, false, true, true, false, true});
      check({m, 50, k, DType::bf16, DType::bf16, DType::f32, true, false, true});
      check({m, 50, k, DType::bf16, DType::bf16, DType::bf16, false, true});
      check({50, m, k, DType::f32, DType::f32, DType::f32, true, false, true});
    }
  });
}

TEST_F(Gemm, PairsOfBf16FlushSubnormalsAlike) {
  // Products around the smallest normal number, on chains that start there, so that operands, partial sums
  // and results are subnormal now and then.
  each_isa([] {
    const int64_t m = 64, n = 200, k = 6;
    Matrix a(m, k, DType::bf16, 1), b(n, k, DType::bf16, 2), c(m, n, DType::f32, 3);
    const Random random(9, RandomPurpose::test);
    const auto scale = [&](Matrix& x, int64_t rows, int64_t cols, int low, uint64_t salt) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < cols; ++j)
          x.at(r, j) *= std::ldexp(
              1.0f, low - static_cast<int>(random.bits(salt + static_cast<uint64_t>(r * cols + j)) % 14));
      x.sync();
    };
    scale(a, m, k, -56, 0);
    scale(b, n, k, -56, 1 << 20);
    scale(c, m, n, -116, 2 << 20);
    for (int64_t j = 0; j < n; j += 7) b.at(j, 1) = 0x1p-130f;
    b.sync();
    const Matrix before = c;
    GemmArgs args{m,           n,    k,    a.data(), DType::bf16, false,      a.ld, b.data(),
                  DType::bf16, true, b.ld, nullptr,  c.data(),    DType::f32, c.ld, true};
    gemm(args);
    int64_t flushes = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const auto a_of = [&](int64_t q) { return a.value(i, q); };
        const auto b_of = [&](int64_t q) { return b.value(j, q); };
        const float expected = chain(true, k, before.value(i, j), a_of, b_of);
        ASSERT_EQ(bits(c.value(i, j)), bits(expected)) << i << "," << j << " " << isa_name(active_isa());
        float kept = before.value(i, j);
        for (int64_t q = 0; q < k; q += 2)
          kept = std::fma(a_of(q), b_of(q), std::fma(a_of(q + 1), b_of(q + 1), kept));
        flushes += bits(kept) != bits(expected);
      }
    EXPECT_GT(flushes, 100) << "the test's numbers are not small enough";
  });
}

TEST_F(Gemm, LargeEnoughForEveryPathOfThePlan) {
  check({300, 500, 130});
  // Rows of A 4 KiB apart, which are packed where they would fill a set of the level 1 cache.
  check({.m = 139, .n = 390, .k = 100, .tb = true, .bias = true, .unused_of_a = 924});
  check({.m = 139, .n = 390, .k = 99, .b = DType::bf16, .c = DType::bf16, .unused_of_a = 925});
  check({.m = 139, .n = 390, .k = 98, .a = DType::bf16, .b = DType::bf16, .tb = true, .unused_of_a = 1950});
  check(
      {.m = 139, .n = 390, .k = 100, .a = DType::bf16, .packed = true, .round_b = true, .unused_of_a = 1948});
  check({1200, 96, 40, DType::bf16, DType::bf16, DType::bf16, false, true});
  check({64, 1000, 200, DType::f32, DType::bf16, DType::f32, true, false, true, true});
  check({49, 2100, 1100, DType::f32, DType::f32, DType::f32, true, false});
  check({310, 97, 1100, DType::f32, DType::f32, DType::f32, true, false, true});
  check({130, 49, 2600, DType::bf16, DType::bf16, DType::bf16, true, false, false, true});
  check({40, 1000, 200, DType::f32, DType::f32, DType::f32, false, true, false, true});
  check({33, 100, 2400, DType::bf16, DType::bf16, DType::bf16, false, true, false, true});
}

TEST_F(Gemm, PiecesWhoseLastTilesPackTheNextStrip) {
  const int before = num_threads();
  each_isa([] {
    for (const int threads : {1, 2}) {  // several pieces each
      set_num_threads(threads);
      check({600, 240, 48, DType::bf16, DType::bf16, DType::f32});
      check(
          {1021, 240, 48, DType::f32, DType::f32, DType::f32, true});  // columns of A 4 KiB apart are packed
      // too few tiles to do it slowly
      check({.m = 100, .n = 240, .k = 50, .a = DType::bf16, .round_b = true});
      check(
          {600, 235, 47, DType::bf16, DType::bf16, DType::bf16});  // half a pair and half a vector at the end
    }
  });
  set_num_threads(before);
}

TEST_F(Gemm, ThreadsPackRowsOfTheirOwn) {
  const int before = num_threads();
  for (const int threads : {1, 2, 3, 5}) {
    set_num_threads(threads);
    check({1203, 33, 64, DType::bf16, DType::bf16, DType::f32, true});
    check({1600, 5, 2100, DType::bf16, DType::bf16, DType::f32, true, false, true});  // k in two blocks
    check({800, 400, 40, DType::f32, DType::f32, DType::f32, true});
    check({64, 3, 50000, DType::bf16, DType::f32, DType::bf16});  // more than the budget of packed A
  }
  set_num_threads(before);
}

TEST_F(Gemm, RowsDoNotDependOnTheirNumberOrTheThreads) {
  const int64_t n = 100, k = 700, most = 4096;
  Matrix a(most, k, DType::f32, 1), b(n, k, DType::bf16, 2), all(most, n, DType::f32, 3);
  GemmArgs args{most,        n,    k,    a.data(), DType::f32, false,      a.ld,  b.data(),
                DType::bf16, true, b.ld, nullptr,  all.data(), DType::f32, all.ld};
  gemm(args);
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    for (const int64_t m : {1, 2, 7, 8, 9, 64, 100, 513, 4096}) {
      Matrix some(m, n, DType::f32, 4);
      args.m = m;
      args.c = some.data();
      gemm(args);
      for (int64_t i = 0; i < m; ++i)
        ASSERT_EQ(std::memcmp(&some.at(i, 0), &all.at(i, 0), static_cast<size_t>(n) * 4), 0)
            << m << " row " << i;
    }
  }
  set_num_threads(before);
}

TEST_F(Gemm, GroupedEqualsOneProductPerExpert) {
  each_isa([] {
    const std::vector<int64_t> offsets = {2, 2, 9, 26, 26, 27};  // rows 0 and 1 belong to nobody
    const int64_t experts = 5, n = 52, k = 40, rows = 27;
    for (const bool tb : {false, true})
      for (const bool packed : {false, true})
        for (const DType type : {DType::f32, DType::bf16}) {
          Matrix a(rows, k, type, 1), b(experts * (tb ? n : k), tb ? k : n, type, 2),
              bias(experts, n, DType::f32, 3);
          Matrix c(rows, n, DType::f32, 4), expected = c;
          const int64_t stride = (tb ? n : k) * b.ld;
          std::vector<float> flat(static_cast<size_t>(experts * n));
          for (int64_t e = 0; e < experts; ++e)
            std::memcpy(&flat[static_cast<size_t>(e * n)], &bias.at(e, 0), static_cast<size_t>(n) * 4);
          const PackedWeights weights({b.data(), type, false, tb, k, n, b.ld, experts, stride}, type);
          GroupedGemmArgs args{experts,
                               offsets.data(),
                               n,
                               k,
                               a.data(),
                               type,
                               a.ld,
                               b.data(),
                               type,
                               tb,
                               b.ld,
                               stride,
                               packed ? &weights : nullptr,
                               c.data(),
                               DType::f32,
                               c.ld,
                               0,
                               true,
                               flat.data()};
          gemm_grouped(args);
          for (int64_t e = 0; e < experts; ++e)
            for (int64_t r = offsets[static_cast<size_t>(e)]; r < offsets[static_cast<size_t>(e) + 1]; ++r)
              for (int64_t j = 0; j < n; ++j) {
                const float acc = chain(
                    type == DType::bf16, k, expected.value(r, j), [&](int64_t q) { return a.value(r, q); },
                    [&](int64_t q) { return tb ? b.value(e * n + j, q) : b.value(e * k + q, j); });
                expected.at(r, j) = acc + bias.value(e, j);
              }
          ASSERT_EQ(std::memcmp(c.f.data(), expected.f.data(), c.f.size() * 4), 0)
              << tb << packed << name_of(type);
        }
  });
}

TEST_F(Gemm, GroupedWeightGradientWithEmptyExperts) {
  each_isa([] {
    const std::vector<int64_t> offsets = {0, 0, 17, 18, 18, 60};
    const int64_t experts = 5, n = 21, k = 50, rows = 60;
    for (const DType dy_type : {DType::f32, DType::bf16})
      for (const bool accumulate : {false, true}) {
        Matrix dy(rows, n, dy_type, 1), x(rows, k, DType::bf16, 2), dw(experts * n, k, DType::f32, 3),
            expected = dw;
        GroupedGemmArgs args;
        args.experts = experts;
        args.offsets = offsets.data();
        args.n = n;
        args.k = k;
        args.a = dy.data();
        args.a_type = dy_type;
        args.lda = dy.ld;
        args.b = x.data();
        args.b_type = DType::bf16;
        args.ldb = x.ld;
        args.c = dw.data();
        args.ldc = dw.ld;
        args.c_stride = n * dw.ld;
        args.accumulate = accumulate;
        gemm_grouped_weight(args);
        for (int64_t e = 0; e < experts; ++e)
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < k; ++j) {
              const int64_t row = offsets[static_cast<size_t>(e)], end = offsets[static_cast<size_t>(e) + 1];
              expected.at(e * n + i, j) = chain(
                  dy_type == DType::bf16, end - row, accumulate ? expected.value(e * n + i, j) : 0.0f,
                  [&](int64_t r) { return dy.value(row + r, i); },
                  [&](int64_t r) { return x.value(row + r, j); });
            }
        ASSERT_EQ(std::memcmp(dw.f.data(), expected.f.data(), dw.f.size() * 4), 0) << accumulate;
      }
  });
}

TEST_F(Gemm, SymmetricProductHasTheBitsOfTheFullOne) {
  each_isa([] {
    for (const int64_t m : {0, 1, 15, 50, 130})
      for (const bool ta : {false, true})
        for (const DType a_type : {DType::f32, DType::bf16}) {
          const int64_t k = 70;
          Matrix a(ta ? k : m, ta ? m : k, a_type, 1), c(m, m, DType::f32, 2), full(m, m, DType::f32, 3);
          GemmArgs args{m,      m,   k,    a.data(), a_type,      ta,         a.ld,   a.data(),
                        a_type, !ta, a.ld, nullptr,  full.data(), DType::f32, full.ld};
          gemm(args);
          args.b = nullptr;
          args.c = c.data();
          gemm_symmetric(args);
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < m; ++j)
              ASSERT_EQ(bits(c.value(i, j)), bits(full.value(i, j))) << m << " " << i;
        }
  });
}

TEST_F(Gemm, SymmetricProductOfTwoMatricesIsTheLowerTriangleTwice) {
  each_isa([] {
    for (const int64_t m : {1, 47, 96, 210}) {
      Matrix a(m, m, DType::f32, 1), b(m, m, DType::f32, 2), c(m, m, DType::f32, 3),
          full(m, m, DType::f32, 4);
      GemmArgs args;
      args.m = args.n = args.k = m;
      args.a = a.data(), args.lda = a.ld, args.b = b.data(), args.ldb = b.ld;
      args.c = full.data(), args.ldc = full.ld;
      gemm(args);
      args.c = c.data(), args.ldc = c.ld;
      gemm_symmetric(args);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < m; ++j)
          ASSERT_EQ(bits(c.value(i, j)), bits(full.value(std::max(i, j), std::min(i, j)))) << m << " " << i;
    }
  });
}

}  // namespace ingot::gemm_ops_test
