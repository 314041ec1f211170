// What kernels of a GPU use of it: the same text is compiled by nvcc (CUDA), by clang for AMD (HIP) and by
// the host's compiler for the emulator (emulator.h). Kernels are files *.cu in their op's folder; all they
// define lives in the namespace INGOT_ISA (cuda, hip, emulated), as that of isa_*.cpp does, and a launch
// function of plain arguments is what host code calls:
//
//   gpu_activation.h:  INGOT_GPU_KERNEL(void, launch_activation, (GpuStream, const Args& args));
//   activation.cu:     template <class T>
//                      INGOT_KERNEL(128) activation_kernel(const Args args) { ... global_thread() ... }
//                      void launch_activation(GpuStream stream, const Args& args) {
//                        launch("activation", activation_kernel<float>, {blocks, 128}, stream, args);
//                      }
//   gpu.cpp:           INGOT_GPU_CALL(launch_activation)(stream, args);
//
// INGOT_KERNEL_BESIDE(threads, blocks) says too how many blocks a multiprocessor should have registers for.
//
// In kernels:
//   thread_index(), block_index(), block_size(), grid_size(), global_thread()
//   INGOT_SHARED(Type, name)       memory of the block
//   sync_threads()                 every thread of the block comes here, and to no other line
//   shuffle_xor<kGroup>(x, mask)   the value of the thread whose number differs in these bits; every thread
//                                  of an aligned group of kGroup (at most 32) comes here
//   load4, store4                  16 bytes, or 8 of bf16, at a multiple of their size
//   mma_16x8x16(sums, a, b)        a tensor core's instruction (HIP: mma_16x16x16), of which mma.h makes
//                                  products
//   raise_to(&y, x)                y = the larger, by threads of any block in any order; passes over NaN
//   add_rn, mul_rn, fma_rn, ...    one rounding each, whatever the compiler's flags
#pragma once
#if !defined(INGOT_ISA_gpu)
#error "rt.h is for files *.cu only"
#endif
#include <cstdint>

#include "device/gpu/launch.h"

#if defined(INGOT_ISA_emulated)
#include "device/gpu/rt_emulated.h"
#elif defined(INGOT_ISA_hip)
#include "device/gpu/rt_hip.h"
#else
#include "device/gpu/rt_cuda.h"
#endif

namespace ingot::INGOT_ISA {

INGOT_INLINE int64_t global_thread() {
  return int64_t{block_index()} * block_size() + thread_index();
}

/// Kernel<<<blocks, threads>>>(arguments...), or nothing where there are no blocks.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const GpuGrid& grid, GpuStream stream,
            const Arguments&... arguments) {
  if (grid.blocks > 0) launch_blocks(name, kernel, grid, stream, static_cast<Parameters>(arguments)...);
}

}  // namespace ingot::INGOT_ISA
