// How host code asks for kernels of a GPU (rt.h): plain, for the glue of ops and for *.cu. A launch function
// is declared once for each GPU that this build may have kernels for.
#pragma once
#include <cstdint>

#if __has_include("ingot_gpu_builds.h")  // which kernels that are compiled alone do not need
#include "ingot_gpu_builds.h"
#endif

/// Declares a launch function; INGOT_GPU_CALL names the one to call.
#define INGOT_GPU_KERNEL(result, name, parameters) \
  namespace emulated {                             \
  result name parameters;                          \
  }                                                \
  namespace cuda {                                 \
  result name parameters;                          \
  }                                                \
  namespace hip {                                  \
  result name parameters;                          \
  }
#if defined(INGOT_WITH_CUDA)  // CMake's INGOT_CUDA, in ingot_gpu_builds.h
#define INGOT_GPU_CALL(name) (::ingot::launches_compiled() ? ::ingot::cuda::name : ::ingot::emulated::name)
#else
#define INGOT_GPU_CALL(name) (::ingot::emulated::name)
#endif

namespace ingot {

/// Whether launches of the calling thread go to a device that has the kernels as its own code (launcher.h).
bool launches_compiled();

/// Where work of a GPU is queued: a hipStream_t. On CUDA it is the thread's compute stream (launcher.h); the
/// emulator runs kernels at once.
struct GpuStream {
  void* handle = nullptr;
};

struct GpuGrid {
  int64_t blocks;
  int threads;               ///< of a block
  int64_t shared_bytes = 0;  ///< of a block's dynamic shared memory
};

/// A grid of at least `total` threads.
inline GpuGrid grid_of(int64_t total, int threads) {
  return {(total + threads - 1) / threads, threads};
}

}  // namespace ingot
