// Element types, and bf16 as a plain 16-bit struct. Kernels of every instruction set include this header.
#pragma once
#include <bit>
#include <cstdint>

namespace ingot {

enum class DType : uint8_t { f32, bf16, f64, i32, i64, u8, u16 };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::u16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::u16:
      return "u16";
  }
  return "?";
}

constexpr bool is_floating(DType t) {
  return t == DType::f32 || t == DType::bf16 || t == DType::f64;
}

/// bfloat16: the upper half of an IEEE float. Conversion from float rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
};

inline __attribute__((always_inline)) float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
inline __attribute__((always_inline)) float to_float(float x) {
  return x;
}

inline __attribute__((always_inline)) bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = u + 0x7FFFu + ((u >> 16) & 1u);
  const bool nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
  return {static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : rounded >> 16)};
}

/// An f32 in memory that is read as its rounding to bf16.
struct RoundedFloat {
  float value = 0;
};
inline __attribute__((always_inline)) float to_float(RoundedFloat x) {
  return to_float(to_bf16(x.value));
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::u16;
};

}  // namespace ingot
