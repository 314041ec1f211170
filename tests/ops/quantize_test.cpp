// quantize, dequantize: every code of E4M3, rounding, scales, tiles that are not finite, empty and odd sizes.
#include "ops/quantize/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "device/simd/isa.h"
#include "support/op_check.h"

namespace ingot::test::quantize_test {

/// What the codes 0 to 0x7E stand for, by the tables of [OCP-FP8].
constexpr double kCodes[] = {
    0,        0.001953125, 0.00390625, 0.005859375, 0.0078125, 0.009765625, 0.01171875, 0.013671875,
    0.015625, 0.017578125, 0.01953125, 0.021484375, 0.0234375, 0.025390625, 0.02734375, 0.029296875,
    0.03125,  0.03515625,  0.0390625,  0.04296875,  0.046875,  0.05078125,  0.0546875,  0.05859375,
    0.0625,   0.0703125,   0.078125,   0.0859375,   0.09375,   0.1015625,   0.109375,   0.1171875,
    0.125,    0.140625,    0.15625,    0.171875,    0.1875,    0.203125,    0.21875,    0.234375,
    0.25,     0.28125,     0.3125,     0.34375,     0.375,     0.40625,     0.4375,     0.46875,
    0.5,      0.5625,      0.625,      0.6875,      0.75,      0.8125,      0.875,      0.9375,
    1,        1.125,       1.25,       1.375,       1.5,       1.625,       1.75,       1.875,
    2,        2.25,        2.5,        2.75,        3,         3.25,        3.5,        3.75,
    4,        4.5,         5,          5.5,         6,         6.5,         7,          7.5,
    8,        9,           10,         11,          12,        13,          14,         15,
    16,       18,          20,         22,          24,        26,          28,         30,
    32,       36,          40,         44,          48,        52,          56,         60,
    64,       72,          80,         88,          96,        104,         112,        120,
    128,      144,         160,        176,         192,       208,         224,        240,
    256,      288,         320,        352,         384,       416,         448,
};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
constexpr int kOne = 127;  // the scale 2^0

/// f once for each kernel of the CPU, with every instruction set that it has.
template <class F>
void with_every_kernel(const Op& op, F&& f) {
  const Isa best = active_isa();
  for (const Kernel& kernel : op.kernels) {
    if (kernel.device != DeviceKind::cpu) continue;
    for (const Isa isa : kEveryIsa) {
      if (!isa_available(isa)) continue;
      force_isa(isa);
      SCOPED_TRACE(fmt::format("{} {}", kernel.name, isa_name(isa)));
      f(kernel);
    }
  }
  force_isa(best);
}

std::vector<uint8_t> quantized(const Kernel& kernel, const Tensor& x) {
  std::vector<uint8_t> q(static_cast<size_t>(x.dim(0) * quantized_width(x.dim(1))));
  const Tensor out[] = {Tensor(q.data(), Shape{x.dim(0), quantized_width(x.dim(1))}, DType::u8)};
  kernel.forward({nullptr, {&x, 1}, out, {}, {}});
  return q;
}
template <class T>
std::vector<uint8_t> quantized(const Kernel& kernel, const std::vector<T>& row) {
  return quantized(kernel, Tensor::of(row.data(), {1, static_cast<int64_t>(row.size())}));
}

/// Of one row.
std::vector<float> dequantized(const Kernel& kernel, const std::vector<uint8_t>& q) {
  const auto bytes = static_cast<int64_t>(q.size());
  std::vector<float> x(static_cast<size_t>(dequantized_width(bytes)));
  const Tensor in[] = {Tensor(const_cast<uint8_t*>(q.data()), Shape{1, bytes}, DType::u8)},
               out[] = {Tensor::of(x.data(), {1, static_cast<int64_t>(x.size())})};
  const DequantizeAttr attr;
  kernel.forward({&attr, in, out, {}, {}});
  return x;
}

std::vector<float> there_and_back(const std::vector<float>& x) {
  return dequantized(dequantize_op().kernels.front(), quantized(quantize_op().kernels.front(), x));
}

TEST(Quantize, WidthsFollowFromEachOther) {
  EXPECT_EQ(quantized_width(128), 129);
  EXPECT_EQ(quantized_width(129), 131);
  for (int64_t width = 0; width < 1000; ++width) EXPECT_EQ(dequantized_width(quantized_width(width)), width);
}

TEST(Dequantize, EveryCodeIsThatOfTheTable) {
  ASSERT_EQ(std::size(kCodes), 0x7Fu);
  with_every_kernel(dequantize_op(), [](const Kernel& kernel) {
    for (const int scale : {0, 1, kOne - 30, kOne, kOne + 100, 254})
      for (int code = 0; code < 256; ++code) {
        const float x = dequantized(kernel, {static_cast<uint8_t>(code), static_cast<uint8_t>(scale)})[0];
        if ((code & 0x7F) == 0x7F) {
          EXPECT_TRUE(std::isnan(x)) << code;
          continue;
        }
        const double expected = std::ldexp(kCodes[code & 0x7F], scale - kOne);
        EXPECT_EQ(std::abs(x), static_cast<float>(expected)) << code << " scale " << scale;
        EXPECT_EQ(std::signbit(x), code >= 0x80) << code;
      }
    for (const float x : dequantized(kernel, {0, 1, 0x40, 0x80, 0xFF})) EXPECT_TRUE(std::isnan(x));
  });
}

/// Beside 448, the largest number of the tile, the scale is 1.
template <class T>
int code_beside_448(const Kernel& kernel, T x) {
  T largest;
  if constexpr (std::is_same_v<T, bf16>)
    largest = to_bf16(448.0f);
  else
    largest = 448;
  const std::vector<uint8_t> q = quantized(kernel, std::vector<T>{x, largest});
  EXPECT_EQ(q[1], 0x7E);
  EXPECT_EQ(q[2], kOne);
  return q[0];
}

TEST(Quantize, CodesRoundToTheNearestAndTiesToEven) {
  with_every_kernel(quantize_op(), [](const Kernel& kernel) {
    for (int code = 0; code < 0x7E; ++code)
      for (const float sign : {1.0f, -1.0f}) {
        const auto low = static_cast<float>(kCodes[code]),
                   middle = (low + static_cast<float>(kCodes[code + 1])) / 2;
        const int negative = sign < 0 ? 0x80 : 0, even = code % 2 == 0 ? code : code + 1;
        EXPECT_EQ(code_beside_448(kernel, sign * low), code | negative);
        EXPECT_EQ(code_beside_448(kernel, sign * middle), even | negative) << middle;
        EXPECT_EQ(code_beside_448(kernel, sign * std::nextafterf(middle, 0)), code | negative) << middle;
        EXPECT_EQ(code_beside_448(kernel, sign * std::nextafterf(middle, kInf)), (code + 1) | negative)
            << middle;
        EXPECT_EQ(code_beside_448(kernel, to_bf16(sign * middle)), even | negative) << middle;
        EXPECT_EQ(code_beside_448(quantize_op().kernels.back(), double{sign} * middle), even | negative);
      }
    EXPECT_EQ(code_beside_448(kernel, std::numeric_limits<float>::denorm_min()), 0);
  });
}

TEST(Quantize, TheScaleIsTheSmallestThatHoldsTheLargest) {
  with_every_kernel(quantize_op(), [](const Kernel& kernel) {
    const auto scale_of = [&](float amax) { return int{quantized(kernel, std::vector<float>{0, -amax})[2]}; };
    for (int e = -126; e <= 119; ++e) {
      const float full = std::ldexp(448.0f, e);
      EXPECT_EQ(scale_of(full), e + kOne) << e;
      EXPECT_EQ(scale_of(std::nextafterf(full, kInf)), e + 1 + kOne) << e;
      EXPECT_EQ(scale_of(std::nextafterf(full, 0)), e + kOne) << e;
    }
    EXPECT_EQ(scale_of(0), 0);
    EXPECT_EQ(scale_of(std::numeric_limits<float>::denorm_min()), 0);
    EXPECT_EQ(scale_of(std::ldexp(448.0f, -127)), 0);
    EXPECT_EQ(scale_of(std::numeric_limits<float>::max()), kOne + 120);
  });
}

TEST(Quantize, TilesHaveScalesOfTheirOwn) {
  std::vector<float> x(300, 1.0f);
  x[130] = 1000, x[299] = 0x1p-40f;
  std::fill(x.begin() + 256, x.begin() + 299, 0.0f);
  with_every_kernel(quantize_op(), [&](const Kernel& kernel) {
    const std::vector<uint8_t> q = quantized(kernel, x);
    ASSERT_EQ(q.size(), 303u);
    EXPECT_EQ(q[300], kOne - 8) << "1 is 256 2^-8";
    EXPECT_EQ(q[301], kOne + 2);
    EXPECT_EQ(q[302], kOne - 48);
  });
  const std::vector<float> back = there_and_back(x);
  EXPECT_EQ(back[0], 1);
  EXPECT_EQ(back[129], 1);
  EXPECT_EQ(back[130], 1024) << "250 lies nearer to 256 than to 240";
  EXPECT_EQ(back[299], 0x1p-40f);
}

TEST(Quantize, WhatIsNotFiniteMakesItsTileNan) {
  for (const float bad : {kNan, -kNan, kInf, -kInf, std::bit_cast<float>(0x7F800001u)}) {
    std::vector<float> x(260, 2.0f);
    x[129] = bad;
    with_every_kernel(quantize_op(), [&](const Kernel& kernel) {
      const std::vector<uint8_t> q = quantized(kernel, x);
      EXPECT_EQ(q[261], 0xFF);
      for (size_t i = 128; i < 256; ++i) EXPECT_EQ(q[i], 0x7F);
      EXPECT_EQ(q[260], q[262]);
    });
    const std::vector<float> back = there_and_back(x);
    for (size_t i = 0; i < back.size(); ++i)
      EXPECT_TRUE(i / 128 == 1 ? std::isnan(back[i]) : back[i] == 2) << i;
  }
}

TEST(Quantize, ZerosKeepTheirSigns) {
  const std::vector<float> back = there_and_back({0.0f, -0.0f, -0x1p-140f});
  EXPECT_FALSE(std::signbit(back[0]));
  EXPECT_TRUE(std::signbit(back[1]) && std::signbit(back[2]));
  EXPECT_EQ(back[2], 0) << "less than half of 2^-136, the smallest step of all";
}

TEST(Quantize, TheErrorIsAtMostHalfAStep) {
  const Random random(7, RandomPurpose::test, 1);
  std::vector<float> x(1280);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(random.normal(i) * std::pow(10.0, static_cast<double>(i / 128) - 5));
  const std::vector<float> back = there_and_back(x);
  for (size_t tile = 0; tile < x.size() / 128; ++tile) {
    float amax = 0;
    for (size_t i = 128 * tile; i < 128 * (tile + 1); ++i) amax = std::max(amax, std::abs(x[i]));
    const double scale = std::exp2(std::ceil(std::log2(amax / 448.0)));
    for (size_t i = 128 * tile; i < 128 * (tile + 1); ++i)
      EXPECT_LE(std::abs(double{back[i]} - x[i]),
                std::max(std::ldexp(std::abs(double{x[i]}), -4), std::ldexp(scale, -10)))
          << x[i];
  }
  EXPECT_EQ(there_and_back(back), back) << "what E4M3 has stays";
}

TEST(Quantize, Cases) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t width : {0, 1, 5, 127, 128, 129, 300})
      for (const int64_t rows : {0, 1, 7, 150}) {
        OpCase c;
        c.name = fmt::format("quantize {}x{} {}", rows, width, name_of(type));
        c.op = &quantize_op();
        c.inputs = {{.meta = {Shape{rows, width}, type}, .row_indexed = true}};
        c.output_row_indexed = {true};
        check_op(c);
      }
}

TEST(Quantize, AnyNumbers) {
  const Random random(9, RandomPurpose::test, 2);
  std::vector<double> values(40 * 300);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<uint32_t>(random.below(i, uint64_t{1} << 32));
    // Of every second row any tile may hold what is not finite.
    const bool is_finite = i / 300 % 2 == 0;
    values[i] =
        std::bit_cast<float>(is_finite && (bits & 0x7F800000u) == 0x7F800000u ? bits & ~0x00800000u : bits);
  }
  for (const DType type : {DType::f32, DType::bf16}) {
    OpCase c;
    c.name = fmt::format("quantize any numbers {}", name_of(type));
    c.op = &quantize_op();
    c.inputs = {{.meta = {Shape{40, 300}, type}, .row_indexed = true, .values = values}};
    c.output_row_indexed = {true};
    check_op(c);
  }
}

TEST(Dequantize, Cases) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t width : {0, 1, 5, 127, 128, 129, 300})
      for (const int64_t rows : {0, 1, 256}) {
        OpCase c;
        c.name = fmt::format("dequantize {}x{} {}", rows, width, name_of(type));
        c.op = &dequantize_op();
        c.attr = AttrBox(DequantizeAttr{type});
        c.attr_double = AttrBox(DequantizeAttr{DType::f64});
        std::vector<int32_t> bytes;  // every code, and every scale
        for (int64_t t = 0; t < rows; ++t)
          for (int64_t i = 0; i < quantized_width(width); ++i)
            bytes.push_back(static_cast<int32_t>(i < width ? 37 * i + t : t + i - width) & 0xFF);
        c.inputs = {
            {.meta = {Shape{rows, quantized_width(width)}, DType::u8}, .ints = bytes, .row_indexed = true}};
        c.output_row_indexed = {true};
        // A result beyond f32 is infinite there, and finite in double.
        if (rows == 256)
          for (int32_t& b : c.inputs[0].ints)
            if (b >= 0xF7 && b < 0xFF) b = 0xF6;
        check_op(c);
      }
}

TEST(Dequantize, RefusesRowsThatQuantizeDoesNotMake) {
  const DequantizeAttr attr;
  TensorMeta x;
  const auto infer = [&](int64_t bytes) {
    const Tensor q(nullptr, Shape{2, bytes}, DType::u8);
    dequantize_op().infer({&attr, {&q, 1}, {}, {}, {}}, {&x, 1});
  };
  infer(131);
  EXPECT_EQ(x.shape, (Shape{2, 129}));
  for (const int64_t bytes : {1, 130, 259}) EXPECT_THROW(infer(bytes), InternalError) << bytes;
}

TEST(Quantize, ValuesThatHaveAForm) {
  EXPECT_EQ(fp8_form({Shape{6, 768}, DType::bf16})->packed.bytes(), 6 * 774);
  const PackedForm form = *fp8_form({Shape{2, 3, 256}, DType::f32});
  EXPECT_EQ(form.value, (Shape{6, 256}));
  EXPECT_EQ(form.packed.shape, (Shape{6, 258}));
  EXPECT_TRUE(fp8_form({Shape{6, 2}, DType::f32}));
  EXPECT_FALSE(fp8_form({Shape{6, 1}, DType::bf16})) << "a code and a scale are two bytes too";
  EXPECT_FALSE(fp8_form({Shape{6, 768}, DType::i32}));
  EXPECT_FALSE(fp8_form({Shape{0, 768}, DType::f32}));
  EXPECT_FALSE(fp8_form({Shape{300}, DType::f32})) << "a token's number would depend on others";
  EXPECT_FALSE(fp8_form({Shape{}, DType::f32}));
}

}  // namespace ingot::test::quantize_test
