// rt.h for clang's HIP, of the compiler's own builtins alone: device code compiles without a ROCm package.
// Compiled with -ffp-contract=off: a fused multiply-add is written.
#pragma once
#include <cstddef>

#include "device/gpu/launch.h"

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define INGOT_KERNEL(threads) __global__ __attribute__((amdgpu_flat_work_group_size(1, threads))) void
#define INGOT_KERNEL_BESIDE(threads, blocks) INGOT_KERNEL(threads)
#define INGOT_DEVICE_CODE __device__
#define INGOT_INLINE __device__ inline __attribute__((always_inline))
#define INGOT_UNROLL _Pragma("unroll")
#define INGOT_SHARED(type, name) __shared__ type name

// What a launch becomes, as HIP's runtime declares it.
struct dim3 {
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
  unsigned x, y, z;
};
extern "C" int hipLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments, size_t shared,
                               void* stream);
extern "C" unsigned __hipPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared = 0,
                                               void* stream = nullptr);

namespace ingot::INGOT_ISA {

INGOT_INLINE unsigned thread_index() {
  return __builtin_amdgcn_workitem_id_x();
}
INGOT_INLINE unsigned block_index() {
  return __builtin_amdgcn_workgroup_id_x();
}
INGOT_INLINE unsigned block_size() {
  return __builtin_amdgcn_workgroup_size_x();
}
INGOT_INLINE unsigned grid_size() {
  return __builtin_amdgcn_grid_size_x() / block_size();
}

INGOT_INLINE void sync_threads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
INGOT_INLINE float as_float_bits(uint32_t x) {
  return __builtin_bit_cast(float, x);
}
INGOT_INLINE uint32_t bits_of(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
template <unsigned kGroup>
INGOT_INLINE float shuffle_xor(float x, unsigned mask) {
  const unsigned lane = __builtin_amdgcn_mbcnt_hi(~0U, __builtin_amdgcn_mbcnt_lo(~0U, 0));
  return as_float_bits(static_cast<uint32_t>(
      __builtin_amdgcn_ds_bpermute(static_cast<int>((lane ^ mask) << 2), static_cast<int>(bits_of(x)))));
}

struct alignas(16) FourFloats {
  float x[4];
};
struct alignas(8) FourHalves {
  uint16_t x[4];
};
INGOT_INLINE void load4(const float* from, float (&to)[4]) {
  const FourFloats four = *reinterpret_cast<const FourFloats*>(from);
  for (int i = 0; i < 4; ++i) to[i] = four.x[i];
}
INGOT_INLINE void store4(float* to, const float (&from)[4]) {
  *reinterpret_cast<FourFloats*>(to) = {{from[0], from[1], from[2], from[3]}};
}
INGOT_INLINE void load4(const uint16_t* from, uint16_t (&to)[4]) {
  const FourHalves four = *reinterpret_cast<const FourHalves*>(from);
  for (int i = 0; i < 4; ++i) to[i] = four.x[i];
}
INGOT_INLINE void store4(uint16_t* to, const uint16_t (&from)[4]) {
  *reinterpret_cast<FourHalves*>(to) = {{from[0], from[1], from[2], from[3]}};
}

typedef short MfmaOperand __attribute__((ext_vector_type(4)));
typedef float MfmaSums __attribute__((ext_vector_type(4)));
INGOT_INLINE void mma_16x16x16(float (&sums)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  MfmaSums sum{sums[0], sums[1], sums[2], sums[3]};
  sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(MfmaOperand, a),
                                                  __builtin_bit_cast(MfmaOperand, b), sum, 0, 0, 0);
  INGOT_UNROLL
  for (int i = 0; i < 4; ++i) sums[i] = sum[i];
}

INGOT_INLINE void raise_to(float* to, float x) {
  if (x != x) return;
  const int bits = __builtin_bit_cast(int, x);
  if (bits >= 0)  // floats compare as integers do, negative ones the other way
    __atomic_fetch_max(reinterpret_cast<int*>(to), bits, __ATOMIC_RELAXED);
  else
    __atomic_fetch_min(reinterpret_cast<unsigned*>(to), static_cast<unsigned>(bits), __ATOMIC_RELAXED);
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
void launch_blocks(const char*, void (*kernel)(Parameters...), const GpuGrid& grid, GpuStream stream,
                   const Parameters&... parameters) {
  kernel<<<dim3(static_cast<unsigned>(grid.blocks)), dim3(static_cast<unsigned>(grid.threads)), 0,
           stream.handle>>>(parameters...);
}

}  // namespace ingot::INGOT_ISA
