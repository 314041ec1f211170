// rt.h for the emulator.
#pragma once
#include <cmath>
#include <cstring>
#include <source_location>
#include <tuple>

#include "device/gpu/emulated_mma.h"
#include "device/gpu/emulator.h"
#include "device/gpu/launcher.h"

#define INGOT_KERNEL(threads) void
#define INGOT_KERNEL_BESIDE(threads, blocks) void
#define INGOT_DEVICE_CODE
#define INGOT_INLINE inline __attribute__((always_inline))
#define INGOT_UNROLL
#define INGOT_SHARED(type, name)    \
  static const char name##_key = 0; \
  auto& name = *static_cast<type*>(::ingot::emulator::shared_memory(&name##_key, sizeof(type)))

namespace ingot::INGOT_ISA {

INGOT_INLINE unsigned thread_index() {
  return emulator::here().thread;
}
INGOT_INLINE unsigned block_index() {
  return emulator::here().block;
}
INGOT_INLINE unsigned block_size() {
  return emulator::here().block_size;
}
INGOT_INLINE unsigned grid_size() {
  return emulator::here().grid_size;
}

inline void sync_threads(const std::source_location& where = std::source_location::current()) {
  emulator::meet_block(where);
}
INGOT_INLINE float as_float_bits(uint32_t x) {
  return __builtin_bit_cast(float, x);
}
INGOT_INLINE uint32_t bits_of(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
template <unsigned kGroup>
float shuffle_xor(float x, unsigned mask,
                  const std::source_location& where = std::source_location::current()) {
  return as_float_bits(emulator::exchange(bits_of(x), mask, kGroup, where));
}

inline void load4(const float* from, float (&to)[4],
                  const std::source_location& where = std::source_location::current()) {
  emulator::require_aligned(from, sizeof(to), where);
  std::memcpy(to, from, sizeof(to));
}
inline void store4(float* to, const float (&from)[4],
                   const std::source_location& where = std::source_location::current()) {
  emulator::require_aligned(to, sizeof(from), where);
  std::memcpy(to, from, sizeof(from));
}
inline void load4(const uint16_t* from, uint16_t (&to)[4],
                  const std::source_location& where = std::source_location::current()) {
  emulator::require_aligned(from, sizeof(to), where);
  std::memcpy(to, from, sizeof(to));
}
inline void store4(uint16_t* to, const uint16_t (&from)[4],
                   const std::source_location& where = std::source_location::current()) {
  emulator::require_aligned(to, sizeof(from), where);
  std::memcpy(to, from, sizeof(from));
}

inline void mma_16x8x16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                        const std::source_location& where = std::source_location::current()) {
  emulator::Mma own{sums, a, b};
  emulator::together(&own, 32, emulator::multiply, where);
}

INGOT_INLINE void raise_to(float* to, float x) {
  if (x > *to) *to = x;
}

INGOT_INLINE float add_rn(float a, float b) {
  return a + b;
}
INGOT_INLINE float sub_rn(float a, float b) {
  return a - b;
}
INGOT_INLINE float mul_rn(float a, float b) {
  return a * b;
}
INGOT_INLINE float div_rn(float a, float b) {
  return a / b;
}
INGOT_INLINE float fma_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
INGOT_INLINE float sqrt_rn(float a) {
  return __builtin_sqrtf(a);
}
INGOT_INLINE double sqrt_rn(double a) {
  return __builtin_sqrt(a);
}

template <class... Parameters>
void launch_blocks(const char* name, void (*kernel)(Parameters...), const GpuGrid& grid, GpuStream,
                   const Parameters&... parameters) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  };
  const Call call{kernel, {parameters...}};
  void (*const body)(const void*) = [](const void* what) {
    const Call& c = *static_cast<const Call*>(what);
    std::apply(c.kernel, c.parameters);
  };
  if (GpuLauncher* const launcher = gpu_launcher())
    launcher->launch_kernel(
        {.name = name, .grid = grid, .body = body, .arguments = &call, .argument_bytes = sizeof(call)});
  else
    emulator::run(name, grid.blocks, grid.threads, body, &call);
}

}  // namespace ingot::INGOT_ISA
