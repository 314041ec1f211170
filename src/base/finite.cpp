// See finite.h.
#include "base/finite.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ingot {
namespace {

/// Values whose exponent bits are all set. Blocks without one cost a pass that compilers vectorize.
template <class Bits>
int64_t first_with_exponent(const void* values, int64_t count, Bits exponent) {
  constexpr int64_t kBlock = 4096;
  const auto* bits = static_cast<const Bits*>(values);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) found |= static_cast<Bits>((bits[i] & exponent) == exponent);
    if (found == 0) continue;
    return std::find_if(bits + begin, bits + end, [&](Bits b) { return (b & exponent) == exponent; }) - bits;
  }
  return -1;
}

template <class T>
double load(const void* values, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(values) + index * static_cast<int64_t>(sizeof value),
              sizeof value);
  if constexpr (std::is_same_v<T, bf16>)
    return to_float(value);
  else
    return static_cast<double>(value);
}

}  // namespace

int64_t first_not_finite(const void* values, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return first_with_exponent<uint32_t>(values, count, 0x7F800000u);
    case DType::bf16:
      return first_with_exponent<uint16_t>(values, count, 0x7F80u);
    case DType::f64:
      return first_with_exponent<uint64_t>(values, count, 0x7FF0000000000000u);
    default:
      return -1;
  }
}

double value_at(const void* values, int64_t index, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return load<float>(values, index);
    case DType::bf16:
      return load<bf16>(values, index);
    case DType::f64:
      return load<double>(values, index);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace ingot
