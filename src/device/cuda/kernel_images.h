// The kernels that nvcc compiled into this program (CMake's INGOT_CUDA), as its own code registers them
// before main(): images for several architectures, and kernels by the host's address. There are none in an
// ordinary build.
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "device/cuda/driver.h"

namespace ingot::cuda_driver {

bool has_kernel_images();
/// Architectures that the images are for: "sm_80 sm_90a sm_100"; "" without images.
std::string image_architectures();
/// Whether one of such architectures runs on a GPU of this compute capability (90: sm_90): "sm_90a" on that,
/// "sm_80" on all of its major number from there on.
bool serve(const std::string& architectures, int compute);
/// Version of CUDA whose drivers take the images; 0 without images.
int oldest_version_for_kernels();

/// The kernels of one context. Thread-safe.
class LoadedKernels {
 public:
  explicit LoadedKernels(const Functions& call) : call_(call) {}
  /// The kernel of that address of the host, whose image is loaded the first time. A failure's text in
  /// `error`.
  Function find(const void* kernel, Result& error);

 private:
  const Functions& call_;
  std::mutex mutex_;
  std::map<const void*, Module> modules_;  ///< by image
  std::map<const void*, Function> functions_;
};

}  // namespace ingot::cuda_driver
