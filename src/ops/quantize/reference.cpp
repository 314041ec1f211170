// quantize and dequantize in plain loops; see quantize.h.
#include "ops/reference.h"

#include <cmath>
#include <limits>

#include "ops/quantize/quantize.h"

namespace ingot {
namespace {

using namespace reference;

constexpr double kLargest = 448;
constexpr int kLeastExponent = -127, kMostExponent = 127;
constexpr uint8_t kNanScale = 0xFF, kNanCode = 0x7F;

/// The exponent of a tile's scale; amax is finite.
int exponent_of(double amax) {
  int e = kLeastExponent;
  while (e < kMostExponent && amax > std::ldexp(kLargest, e)) ++e;
  return e;
}

uint8_t code_of(double x) {
  const double size = std::min(std::abs(x), kLargest);
  int exponent = -6;  // of the smallest normal number
  while (exponent < 8 && size >= std::ldexp(1, exponent + 1)) ++exponent;
  const double steps = std::nearbyint(std::ldexp(size, 3 - exponent));  // 8 to 16, or below 8 if subnormal
  // From 16 steps on the next exponent begins, which the sum carries into.
  const int code = (exponent + 6) * 8 + static_cast<int>(steps);
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

double value_of(uint8_t code) {
  const int size = code & 0x7F, exponent = size / 8;
  if (size == kNanCode) return std::numeric_limits<double>::quiet_NaN();
  const double value = exponent == 0 ? std::ldexp(size, -9) : std::ldexp(8 + size % 8, exponent - 10);
  return (code & 0x80) != 0 ? -value : value;
}

void forward(const OpCall& call) {
  const Array x = load(call.in[0]);
  const int64_t width = call.in[0].dim(1), bytes = quantized_width(width);
  auto* q = call.out[0].as<uint8_t>();
  for (int64_t t = 0; t < call.in[0].dim(0); ++t, q += bytes)
    for (int64_t begin = 0; begin < width; begin += kQuantizedTile) {
      const double* const row = x.data() + t * width;
      const int64_t end = std::min(begin + kQuantizedTile, width);
      double amax = 0;
      bool is_finite = true;
      for (int64_t j = begin; j < end; ++j) {
        is_finite &= std::isfinite(row[j]);
        amax = std::max(amax, std::abs(row[j]));
      }
      const int e = is_finite ? exponent_of(amax) : 0;
      q[width + begin / kQuantizedTile] = is_finite ? static_cast<uint8_t>(e + 127) : kNanScale;
      for (int64_t j = begin; j < end; ++j) q[j] = is_finite ? code_of(std::ldexp(row[j], -e)) : kNanCode;
    }
}

void forward_back(const OpCall& call) {
  const int64_t rows = call.out[0].dim(0), width = call.out[0].dim(1), bytes = quantized_width(width);
  const auto* q = call.in[0].as<uint8_t>();
  Array x;
  x.reserve(static_cast<size_t>(rows * width));
  for (int64_t t = 0; t < rows; ++t, q += bytes)
    for (int64_t j = 0; j < width; ++j) {
      const uint8_t scale = q[width + j / kQuantizedTile];
      x.push_back(scale == kNanScale ? value_of(kNanCode) : std::ldexp(value_of(q[j]), scale - 127));
    }
  store(call.out[0], x);
}

}  // namespace

Kernel quantize_reference() {
  return {"reference", accept, forward, nullptr, nullptr};
}
Kernel dequantize_reference() {
  return {"reference", accept, forward_back, nullptr, nullptr};
}

}  // namespace ingot
