// qk_prepare: norm, partial rotary, positions; the angles against the standard library in long double.
#include "ops/qk_prepare/qk_prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/sequence/rotary.h"
#include "support/op_check.h"
#include "support/sequence_cases.h"

namespace ingot::test::qk_prepare_test {

struct PrepareOptions {
  int64_t heads = 2, kv_heads = 1, width = 8, rotary = 8;
  bool norm = false, weights = false;
  double theta = 10000;
  RotaryRule rule = {};  ///< theta and dims are taken from above
  bool joint = false;
  double weight_offset = 0;
};

void check(const PrepareOptions& o, int64_t rows, DType type, DType out) {
  OpCase c;
  c.name =
      fmt::format("qk_prepare {}/{}x{} rotary={} {} norm={} joint={} offset={} weights={} rows={} {} to {}",
                  o.heads, o.kv_heads, o.width, o.rotary, name_of(o.rule.kind), o.norm, o.joint,
                  o.weight_offset, o.weights, rows, name_of(type), name_of(out));
  c.op = &qk_prepare_op();
  RotaryRule rule = o.rule;
  rule.theta = o.theta, rule.dims = o.rotary;
  QkPrepareAttr attr{o.heads, o.kv_heads, o.width, rule, o.norm, 1e-6, out, o.joint, o.weight_offset};
  c.attr = AttrBox(attr);
  attr.out = DType::f64;
  c.attr_double = AttrBox(attr);
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t * t * 37 % 900001);
  const auto weight = [&](int64_t of) {
    return CaseInput{.meta = {{attr.weight_width(of)}, DType::f32},
                     .scale = 0.3,
                     .offset = 1 - o.weight_offset,
                     .present = o.weights};
  };
  c.inputs = {{.meta = {{rows, (o.heads + 2 * o.kv_heads) * o.width}, type}, .row_indexed = true},
              {.meta = {{rows}, DType::i32}, .ints = positions, .row_indexed = true},
              weight(0),
              weight(1)};
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

TEST(QkPrepare, JointNormsAndWeightsWithAnOffset) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool joint : {false, true})
      for (const bool weights : {false, true}) {
        const double offset = weights ? 1 : 0;
        check({4, 2, 8, 6, true, weights, 1e4, {}, joint, offset}, 5, type, type);
        check({3, 1, 21, 20, true, weights, 1e4, {}, joint, 0}, 70, type, type);
        check({1, 1, 7, 0, true, weights, 1e4, {}, joint, offset}, 200, type, type);
        check({2, 2, 16, 16, true, weights, 1e4, {}, joint, offset}, 0, type, type);
      }
}

const RotaryRule kRules[] = {{500000, 16, RotaryKind::linear, false, 4},
                             {500000, 16, RotaryKind::llama3, false, 8, 1, 4, 64},
                             {10000, 16, RotaryKind::yarn, false, 4, 1, 32, 4096, 1.1386},
                             {1024, 16, RotaryKind::half_truncated},
                             {10000, 16, RotaryKind::plain, true}};

TEST(QkPrepare, ScaledAndHalfTruncatedRotations) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const RotaryRule& rule : kRules)
      for (const int64_t width : {16, 21}) {
        check({2, 1, width, 16, false, false, rule.theta, rule}, 5, type, type);
        check({3, 3, width, 12, true, true, rule.theta, rule}, 70, type, type);
      }
}

/// The scaling rules against known results: pairs keep their frequency, are slowed, or do not rotate.
TEST(QkPrepare, FrequenciesOfTheRules) {
  const auto of = [](const RotaryRule& rule) {
    std::vector<double> f(static_cast<size_t>(rule.dims / 2));
    rotary_frequencies(rule, f.data());
    return f;
  };
  const auto plain = of({500000, 16}), linear = of(kRules[0]), llama3 = of(kRules[1]), half = of(kRules[3]);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(plain[i], std::pow(500000.0, -static_cast<double>(i) / 8));
    EXPECT_DOUBLE_EQ(linear[i], plain[i] / 4);
    const double turns = 64 * plain[i] / (2 * M_PI);  // within the original context
    const double share = std::clamp((turns - 1) / 3, 0.0, 1.0);
    EXPECT_NEAR(llama3[i], plain[i] * (share + (1 - share) / 8), 1e-15);
    EXPECT_DOUBLE_EQ(half[i], i < 4 ? -std::pow(1024.0, -static_cast<double>(i) / 3) : 0.0);
  }
  // theta 10000, 16 channels, context 4096: 32 turns at pair 2.6, one turn at pair 5.6; so 2 .. 6 is the
  // ramp.
  const auto short_ = of({10000, 16}), yarn = of(kRules[2]);
  const double kept[] = {1, 1, 1, 0.75, 0.5, 0.25, 0, 0};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(yarn[i], short_[i] * (kept[i] + (1 - kept[i]) / 4), 1e-15);
}

TEST(QkPrepare, AnglesAreExactToMillionsOfPositions) {
  for (const auto& [theta, dims] :
       {std::pair<double, int64_t>{10000, 64}, {5e6, 64}, {1, 2}, {500000, 128}}) {
    const RotaryTable& table = rotary_table({theta, dims});
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
  const AttrBox attr(QkPrepareAttr{1, 1, 2, {10000, 2}});
  for (const int32_t bad : {-1, 1 << 20, INT32_MIN, INT32_MAX}) {
    const Tensor in[] = {Tensor::of(qkv.data(), {1, 6}), Tensor::of(&bad, {1}), {}, {}};
    const Tensor result[] = {Tensor::of(out.data(), {1, 6}), Tensor::of(out.data(), {0, 2})};
    const OpCall call{attr.data(), in, result, {}, {}};
    for (const Kernel& kernel : qk_prepare_op().kernels) {
      if (kernel.device == DeviceKind::cpu) {
        EXPECT_THROW(kernel.forward(call), Error) << kernel.name << " " << bad;
        continue;
      }
      kernel.forward(call);  // does not read the table there; its NaN stops a step before the update
      for (size_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(out[i]), i < 4) << kernel.name << " " << i;
    }
  }
}

}  // namespace ingot::test::qk_prepare_test
