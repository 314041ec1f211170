// cca: shapes, documents and types through the driver; then the convolutions against an independent fused
// form ([ZAYA1-AMD] §IV-A1, App. C), the norms, and the faults of a wrong padding or a missing reset.
#include "ops/cca/cca.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "ops/reference.h"
#include "support/op_check.h"
#include "support/sequence_cases.h"

namespace ingot::test::cca_test {

using reference::Array;

struct CcaOptions {
  int64_t heads = 2, kv_heads = 1, width = 8, rotary = 4;
  DType type = DType::f32, grouped = DType::f32, out = DType::f32;
  int64_t delayed = -1;
  bool silent_keys = false;  ///< temperatures of 0
  double magnitude = 1;
  const WeightFormat* grouped_format = nullptr;
};

/// `list`: the capacity of a list of documents, which the call then has in place of a layout.
void check_cca(const CcaOptions& o, const std::vector<int64_t>& lengths, int64_t list = 0) {
  const BatchLayout rows = make_rows(lengths);
  const int64_t heads = o.heads + o.kv_heads, channels = heads * o.width;
  OpCase c;
  c.name = fmt::format("cca {}/{}x{} rotary={} docs={} {} {} to {} delayed={}", o.heads, o.kv_heads, o.width,
                       o.rotary, describe(rows), name_of(o.type), Stored{o.grouped, o.grouped_format}.name(),
                       name_of(o.out), o.delayed);
  c.op = &cca_op();
  CcaAttr attr{o.heads, o.kv_heads, o.width, {5e6, o.rotary}, o.out, &rows, 0, o.delayed};
  attr.rotary.magnitude = o.magnitude;
  if (lengths.size() == 1) {
    attr.rows = nullptr;
    c.output_row_indexed = {true, true};
  }
  if (list > 0) {
    attr.rows = nullptr;
    c.name += fmt::format(" in a list of {}", list);
    c.output_row_indexed.clear();
  }
  c.attr = AttrBox(attr);
  attr.out = DType::f64;
  c.attr_double = AttrBox(attr);
  c.inputs = {{.meta = {{rows.count, channels + o.kv_heads * o.width}, o.type}, .row_indexed = true},
              {.meta = {{rows.count}, DType::i32}, .ints = make_positions(rows), .row_indexed = true},
              {.meta = {{channels, 2}, DType::f32}, .scale = 0.5, .offset = 0.2},
              {.meta = {{channels}, DType::f32}, .scale = 0.5},
              {.meta = {{heads, o.width, 2 * o.width}, o.grouped, o.grouped_format},
               .scale = 1 / std::sqrt(2.0 * static_cast<double>(o.width))},
              {.meta = {{channels}, DType::f32}, .scale = 0.5},
              {.meta = {{o.kv_heads}, DType::f32},
               .scale = o.silent_keys ? 0 : 0.5,
               .offset = o.silent_keys ? 0.0 : 2.0}};
  if (list > 0) c.inputs.push_back(list_of(rows, list));
  c.finite_differences = rows.count * channels <= 500;
  c.value_tolerance = 4e-6;
  c.gradient_tolerance = 2e-5;
  check_op(c);
}

TEST(Cca, HeadsGroupsAndTypes) {
  for (const auto& [type, out] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (const auto& [heads, kv_heads] :
         {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 1}, {8, 2}}) {
      check_cca({heads, kv_heads, 8, 4, type, type, out}, {5});
      check_cca({heads, kv_heads, 6, 2, type, type, out}, {2, 1, 0, 3});
    }
}

TEST(Cca, DocumentsInAList) {
  for (const DType type : {DType::f32, DType::bf16}) {
    check_cca({4, 2, 8, 4, type, type, type}, {2, 1, 0, 3}, 3);
    check_cca({2, 1, 6, 2, type, type, type}, {4, 1, 3}, 16);
    check_cca({4, 2, 32, 16, type, type, type}, {0, 33, 1, 2, 64, 0, 97, 0}, 16);
    check_cca({2, 2, 133, 64, type, type, type}, {70, 3}, 2);
    check_cca({2, 1, 8, 4, type, type, type}, {130}, 16);
  }
}

TEST(Cca, ATensorRanksPartOfTheValues) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t delayed : {0, 3, 7}) check_cca({2, 1, 7, 4, type, type, type, delayed}, {4, 1, 3});
}

TEST(Cca, LongDocumentsAndOddOffsets) {
  for (const DType type : {DType::f32, DType::bf16}) {
    check_cca({4, 2, 32, 16, type, type, type}, {0, 33, 1, 2, 64, 0, 97, 0});
    check_cca({2, 1, 64, 32, type, type, type}, {130});
    check_cca({2, 2, 33, 32, type, type, type}, {65, 3});
    check_cca({2, 2, 133, 64, type, type, type}, {70, 3});
    check_cca({2, 2, 128, 64, type, DType::f32, type}, {40});
    check_cca({.width = 64,
               .rotary = 32,
               .type = type,
               .grouped = DType::bf16,
               .out = type,
               .grouped_format = &kRoundedWeight},
              {130, 3});
  }
}

TEST(Cca, KeysThatATemperatureOfZeroSilencesStillHaveGradients) {
  CcaOptions o{4, 2, 16, 8};
  o.silent_keys = true;
  check_cca(o, {5, 3});
  check_cca(o, {130});
}

TEST(Cca, RotationsOfAMagnitude) {
  CcaOptions o{4, 2, 16, 8};
  o.magnitude = 1.14;
  check_cca(o, {5, 3});
}

TEST(Cca, EmptyDocumentsBetweenBlocksOfRows) {
  check_cca({2, 1, 16, 8}, {128, 0, 5});
  check_cca({2, 1, 16, 8, DType::bf16, DType::bf16, DType::bf16}, {128, 0, 0, 5});
}

TEST(Cca, OneTokenDocuments) {
  check_cca({2, 1, 16, 8}, {1, 1, 1, 1, 1});
  check_cca({4, 2, 16, 8, DType::bf16, DType::bf16, DType::bf16}, std::vector<int64_t>(70, 1));
  check_cca({2, 1, 4, 2}, std::vector<int64_t>(500, 1));
}

TEST(Cca, Empty) {
  check_cca({2, 1, 16, 8}, {});
  check_cca({2, 1, 16, 8}, {0});
  check_cca({2, 1, 16, 8}, {0, 0});
}

/// One problem in double with random values, run through the reference.
struct Problem {
  static constexpr int64_t H = 4, G = 2, K = 6, heads = H + G, C = heads * K, W = C + G * K;
  explicit Problem(int64_t rows) : x(draw(0, rows * W)) {}
  static Array draw(uint64_t stream, int64_t count) {
    const Random random(7, RandomPurpose::test, stream);
    Array values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i);
    return values;
  }
  /// No rotation (positions 0), so the normalised heads can be compared as they are.
  Array forward(const BatchLayout& rows) {
    std::vector<int32_t> positions(static_cast<size_t>(rows.count), 0);
    Array y(x.size());
    const AttrBox attr(CcaAttr{H, G, K, {10000, 4}, DType::f64, &rows, 0});
    const Tensor in[] = {Tensor::of(x.data(), {rows.count, W}),
                         Tensor::of(positions.data(), {rows.count}),
                         Tensor::of(taps.data(), {C, 2}),
                         Tensor::of(b0.data(), {C}),
                         Tensor::of(grouped.data(), {heads, K, 2 * K}),
                         Tensor::of(b1.data(), {C}),
                         Tensor::of(tau.data(), {G})};
    Array inverse_norms(static_cast<size_t>(rows.count * heads));
    const Tensor out[] = {Tensor::of(y.data(), {rows.count, W}),
                          Tensor::of(inverse_norms.data(), {rows.count, heads})};
    cca_op().kernels.back().forward({attr.data(), in, out, {}, {}});
    return y;
  }
  double g(int64_t n, int64_t o, int64_t tap, int64_t i) const {
    return grouped[static_cast<size_t>(((n * K + o) * 2 + tap) * K + i)];
  }
  double z(int64_t t, int64_t i) const { return t < 0 ? 0 : x[static_cast<size_t>(t * W + i)]; }

  /// Head n of row t of a document that starts at row 0, by one convolution of width 3, K_2 = G0 diag(a0),
  /// K_1 = G0 diag(a1) + G1 diag(a0), K_0 = G1 diag(a1), bias (G0 + G1) b0 + b1. `separate`: each convolution
  /// padded by itself, so that u_{-1} = 0 (the wrong model).
  Array fused(int64_t t, int64_t n, bool separate = false) const {
    Array head(K);
    double square = 1e-12;
    for (int64_t o = 0; o < K; ++o) {
      double c = b1[static_cast<size_t>(n * K + o)];
      for (int64_t i = 0; i < K; ++i) {
        const auto at = static_cast<size_t>(n * K + i);
        const double a0 = taps[2 * at], a1 = taps[2 * at + 1], g0 = g(n, o, 0, i), g1 = g(n, o, 1, i);
        c += g0 * a0 * z(t - 2, n * K + i) + (g0 * a1 + g1 * a0) * z(t - 1, n * K + i) +
             g1 * a1 * z(t, n * K + i) + (g0 + g1) * b0[at];
        if (separate && t == 0) c -= g0 * b0[at];
      }
      double q = 0, k = 0;
      const int64_t j = n < H ? n / 2 : n - H;
      if (n < H)
        q = z(t, n * K + o);
      else
        q = (z(t, 2 * j * K + o) + z(t, (2 * j + 1) * K + o)) / 2;
      k = z(t, (H + j) * K + o);
      head[static_cast<size_t>(o)] = c + (q + k) / 2;
      square += head[static_cast<size_t>(o)] * head[static_cast<size_t>(o)];
    }
    for (double& v : head)
      v *= std::sqrt(static_cast<double>(K) / square) * (n < H ? 1 : tau[static_cast<size_t>(n - H)]);
    return head;
  }

  Array x, taps = draw(1, 2 * C), b0 = draw(2, C), grouped = draw(3, heads*K * 2 * K), b1 = draw(4, C),
           tau = {1.5, 0.7};
};

TEST(Cca, EqualsTheFusedConvolutionOfWidthThree) {
  Problem p(9);
  const BatchLayout rows = make_rows({9});
  const Array y = p.forward(rows);
  double wrong_padding = 0;
  for (int64_t t = 0; t < 9; ++t)
    for (int64_t n = 0; n < Problem::heads; ++n) {
      const Array expected = p.fused(t, n), separate = p.fused(t, n, true);
      double square = 0;
      for (int64_t o = 0; o < Problem::K; ++o) {
        const auto e = static_cast<size_t>(o);
        const double found = y[static_cast<size_t>(t * Problem::W + n * Problem::K + o)];
        EXPECT_NEAR(found, expected[e], 1e-12) << "row " << t << " head " << n;
        square += found * found;
        if (t == 0) wrong_padding = std::max(wrong_padding, std::abs(found - separate[e]));
      }
      const double tau = n < Problem::H ? 1 : p.tau[static_cast<size_t>(n - Problem::H)];
      EXPECT_NEAR(std::sqrt(square), tau * std::sqrt(static_cast<double>(Problem::K)), 1e-9);
    }
  EXPECT_GT(wrong_padding, 0.1) << "padding each convolution by itself must be another model";
}

TEST(Cca, ValuesArriveHalfOneTokenLate) {
  Problem p(5);
  const BatchLayout rows = make_rows({2, 3});
  const Array y = p.forward(rows);
  constexpr int64_t half = Problem::G * Problem::K / 2;
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const auto now = static_cast<size_t>(t * Problem::W + Problem::C + i), late = now + half;
      EXPECT_EQ(y[now], p.x[now]);
      EXPECT_EQ(y[late], t == 0 || t == 2 ? 0.0 : p.x[late - Problem::W]);
    }
}

/// Documents in one call equal documents alone, and the comparison detects a missing reset.
TEST(Cca, DocumentsDoNotLeak) {
  Problem both(7);
  const BatchLayout packed = make_rows({3, 4}), joined = make_rows({7});
  const Array y = both.forward(packed), leaked = both.forward(joined);
  Problem second(4);
  second.x.assign(both.x.begin() + 3 * Problem::W, both.x.end());
  const Array alone = second.forward(make_rows({4}));
  const auto begin = static_cast<size_t>(3 * Problem::W);
  for (size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(y[begin + i], alone[i]);
  // Without the reset rows 3 and 4 (two convolution taps back) and the delayed value of row 3 change; row 5
  // does not.
  const auto row_differs = [&](int64_t t) {
    for (int64_t i = 0; i < Problem::C; ++i)
      if (std::abs(y[static_cast<size_t>(t * Problem::W + i)] -
                   leaked[static_cast<size_t>(t * Problem::W + i)]) > 1e-3)
        return true;
    return false;
  };
  EXPECT_TRUE(row_differs(3));
  EXPECT_TRUE(row_differs(4));
  EXPECT_FALSE(row_differs(5));
}

}  // namespace ingot::test::cca_test
