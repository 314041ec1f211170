// How host code asks for kernels of a GPU (rt.h): plain, for the glue of ops and for *.cu. A launch function
// is declared once for each GPU that this build has kernels for.
#pragma once
#include <cstdint>

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
#define INGOT_GPU_CALL(name) (::ingot::emulated::name)

namespace ingot {

/// Where work of a GPU is queued: a cudaStream_t or hipStream_t. The emulator runs kernels at once.
struct GpuStream {
  void* handle = nullptr;
};

struct GpuGrid {
  int64_t blocks;
  int threads;  ///< of a block
};

/// A grid of at least `total` threads.
inline GpuGrid grid_of(int64_t total, int threads) {
  return {(total + threads - 1) / threads, threads};
}

}  // namespace ingot
