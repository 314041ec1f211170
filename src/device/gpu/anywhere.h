// INGOT_ANYWHERE begins a function that kernels of GPUs call as well as kernels of the CPU and host code.
// Plain.
#pragma once

#if defined(INGOT_ISA_cuda)
#define INGOT_ANYWHERE __host__ __device__ __forceinline__
#elif defined(INGOT_ISA_hip)
#define INGOT_ANYWHERE inline __attribute__((host, device, always_inline))
#else
#define INGOT_ANYWHERE inline __attribute__((always_inline))
#endif
