// rt.h for nvcc. Compiled with -fmad=false: a fused multiply-add is written.
#pragma once
#include "device/gpu/launcher.h"

#define INGOT_KERNEL(threads) __global__ void __launch_bounds__(threads)
#define INGOT_KERNEL_BESIDE(threads, blocks) __global__ void __launch_bounds__(threads, blocks)
#define INGOT_DEVICE_CODE __device__
#define INGOT_INLINE __device__ __forceinline__
#define INGOT_UNROLL _Pragma("unroll")
#define INGOT_SHARED(type, name) __shared__ type name

namespace ingot::INGOT_ISA {

INGOT_INLINE unsigned thread_index() {
  return threadIdx.x;
}
INGOT_INLINE unsigned block_index() {
  return blockIdx.x;
}
INGOT_INLINE unsigned block_size() {
  return blockDim.x;
}
INGOT_INLINE unsigned grid_size() {
  return gridDim.x;
}

INGOT_INLINE void sync_threads() {
  __syncthreads();
}
INGOT_INLINE float as_float_bits(uint32_t x) {
  return __uint_as_float(x);
}
INGOT_INLINE uint32_t bits_of(float x) {
  return __float_as_uint(x);
}
template <unsigned kGroup>
INGOT_INLINE float shuffle_xor(float x, unsigned mask) {
  constexpr unsigned kAll = kGroup == 32 ? ~0U : (1U << (kGroup % 32)) - 1;
  return __shfl_xor_sync(kAll << (threadIdx.x % 32 & ~(kGroup - 1)), x, static_cast<int>(mask));
}

INGOT_INLINE void load4(const float* from, float (&to)[4]) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
INGOT_INLINE void store4(float* to, const float (&from)[4]) {
  *reinterpret_cast<float4*>(to) = {from[0], from[1], from[2], from[3]};
}
INGOT_INLINE void load4(const uint16_t* from, uint16_t (&to)[4]) {
  const ushort4 x = *reinterpret_cast<const ushort4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
INGOT_INLINE void store4(uint16_t* to, const uint16_t (&from)[4]) {
  *reinterpret_cast<ushort4*>(to) = {from[0], from[1], from[2], from[3]};
}

INGOT_INLINE void mma_16x8x16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

INGOT_INLINE void raise_to(float* to, float x) {
  if (x != x) return;
  const int bits = __float_as_int(x);
  if (bits >= 0)  // floats compare as integers do, negative ones the other way
    atomicMax(reinterpret_cast<int*>(to), bits);
  else
    atomicMin(reinterpret_cast<unsigned*>(to), static_cast<unsigned>(bits));
}

INGOT_INLINE float add_rn(float a, float b) {
  return __fadd_rn(a, b);
}
INGOT_INLINE float sub_rn(float a, float b) {
  return __fsub_rn(a, b);
}
INGOT_INLINE float mul_rn(float a, float b) {
  return __fmul_rn(a, b);
}
INGOT_INLINE float div_rn(float a, float b) {
  return __fdiv_rn(a, b);
}
INGOT_INLINE float fma_rn(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
INGOT_INLINE float sqrt_rn(float a) {
  return __fsqrt_rn(a);
}
INGOT_INLINE double sqrt_rn(double a) {
  return __dsqrt_rn(a);
}

template <class... Parameters>
void launch_blocks(const char* name, void (*kernel)(Parameters...), const GpuGrid& grid, GpuStream,
                   const Parameters&... parameters) {
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
  GpuLaunch launch;
  launch.name = name, launch.grid = grid;
  launch.compiled = reinterpret_cast<const void*>(kernel), launch.parameters = addresses;
  gpu_launcher()->launch_kernel(launch);
}

}  // namespace ingot::INGOT_ISA
