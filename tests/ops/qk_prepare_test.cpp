// qk_prepare: norm, partial rotary, positions; the angles against the standard library in long double.
#include "ops/qk_prepare/qk_prepare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/op_check.h"
#include "ops/sequence/rotary.h"
#include "ops/sequence_cases.h"

namespace ingot::test {
namespace {

struct Options {
  int64_t heads = 2, kv_heads = 1, width = 8, rotary = 8;
  bool norm = false, weights = false;
  double theta = 10000;
};

void check(const Options& o, int64_t rows, DType type, DType out) {
  OpCase c;
  c.name = fmt::format("qk_prepare {}/{}x{} rotary={} norm={} weights={} rows={} {} to {}", o.heads,
                       o.kv_heads, o.width, o.rotary, o.norm, o.weights, rows, name_of(type), name_of(out));
  c.op = &qk_prepare_op();
  QkPrepareAttr attr{o.heads, o.kv_heads, o.width, o.rotary, o.theta, o.norm, 1e-6, out};
  c.attr = AttrBox(attr);
  attr.out = DType::f64;
  c.attr_double = AttrBox(attr);
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t * t * 37 % 900001);
  const CaseInput weight{{{o.width}, DType::f32}, 0.3, 1, {}, o.weights};
  c.inputs = {{{{rows, (o.heads + 2 * o.kv_heads) * o.width}, type}, 1, 0, {}, true, true},
              {{{rows}, DType::i32}, 1, 0, positions, true, true},
              weight,
              weight};
  c.output_row_indexed = {true, true};
  c.finite_differences = rows * o.width * o.heads <= 600;
  check_op(c);
}

TEST(QkPrepare, NormsRotationsAndTypes) {
  for (const auto& [type, out] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::f32, DType::bf16}})
    for (const bool norm : {false, true})
      for (const bool weights : {false, true}) {
        if (weights && !norm) continue;
        for (const int64_t rotary : {0, 2, 4, 8}) check({2, 1, 8, rotary, norm, weights}, 5, type, out);
        check({8, 2, 20, 6, norm, weights}, 3, type, out);
        check({3, 3, 128, 64, norm, weights, 5e6}, 70, type, out);
        check({1, 1, 7, 6, norm, weights}, 200, type, out);
        check({2, 2, 64, 64, norm, weights, 1e6}, 0, type, out);
      }
}

TEST(QkPrepare, AnglesAreExactToMillionsOfPositions) {
  for (const auto& [theta, dims] :
       {std::pair<double, int64_t>{10000, 64}, {5e6, 64}, {1, 2}, {500000, 128}}) {
    const RotaryTable& table = rotary_table(theta, dims);
    std::vector<double> cosine(static_cast<size_t>(dims / 2)), sine(cosine);
    std::vector<float> cosine_f(cosine.size()), sine_f(cosine.size());
    for (const int32_t p : {0, 1, 2, 63, 1023, 1024, 1025, 4097, 131071, 999999, 1048575}) {
      rotary_row(table, p, cosine.data(), sine.data());
      rotary_row(table, p, cosine_f.data(), sine_f.data());
      for (size_t i = 0; i < cosine.size(); ++i) {
        const long double frequency =
            std::pow(static_cast<long double>(theta),
                     -2.0L * static_cast<long double>(i) / static_cast<long double>(dims));
        const long double angle = frequency * p;
        EXPECT_NEAR(cosine[i], static_cast<double>(std::cos(angle)), 4e-10)
            << "position " << p << " pair " << i;
        EXPECT_NEAR(sine[i], static_cast<double>(std::sin(angle)), 4e-10)
            << "position " << p << " pair " << i;
        EXPECT_EQ(cosine_f[i], static_cast<float>(cosine[i]));
        EXPECT_EQ(sine_f[i], static_cast<float>(sine[i]));
      }
    }
  }
}

TEST(QkPrepare, PositionsOutOfRangeAreErrors) {
  std::vector<float> qkv(6, 1.0f), out(6);
  const AttrBox attr(QkPrepareAttr{1, 1, 2, 2});
  for (const int32_t bad : {-1, 1 << 20, INT32_MIN, INT32_MAX}) {
    const Tensor in[] = {Tensor::of(qkv.data(), {1, 6}), Tensor::of(&bad, {1}), {}, {}};
    const Tensor result[] = {Tensor::of(out.data(), {1, 6}), Tensor::of(out.data(), {0, 2})};
    for (const Kernel& kernel : qk_prepare_op().kernels)
      EXPECT_THROW(kernel.forward({attr.data(), in, result, {}, {}}), Error) << kernel.name << " " << bad;
  }
}

}  // namespace
}  // namespace ingot::test
