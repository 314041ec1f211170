// See kernel_images.h. nvcc's host code calls the functions __cuda*, which its own library would define; here
// they note what there is, and the driver loads it when it is asked for.
#include "device/cuda/kernel_images.h"

#include <cstdlib>
#include <sstream>
#include <string_view>

#ifndef INGOT_CUDA_ARCHITECTURES
#define INGOT_CUDA_ARCHITECTURES ""
#define INGOT_CUDA_VERSION 0
#endif

namespace ingot::cuda_driver {
namespace {

struct RegisteredKernel {
  const void* image;
  const char* name;
};

/// Filled before main(), read afterwards.
std::map<const void*, RegisteredKernel>& registered() {
  static auto& kernels = *new std::map<const void*, RegisteredKernel>;
  return kernels;
}

}  // namespace

bool has_kernel_images() {
  return !registered().empty();
}

std::string image_architectures() {
  return INGOT_CUDA_ARCHITECTURES;
}

bool serve(const std::string& architectures, int compute) {
  std::istringstream list(architectures);
  for (std::string each; list >> each;) {
    const int built = std::atoi(each.c_str() + std::string_view("sm_").size());
    const bool is_for_one = each.back() == 'a';
    if (built == compute || (!is_for_one && built / 10 == compute / 10 && built < compute)) return true;
  }
  return false;
}

int oldest_version_for_kernels() {
  return has_kernel_images() ? INGOT_CUDA_VERSION / 1000 * 1000 : 0;  // of one major version all drivers do
}

Function LoadedKernels::find(const void* kernel, Result& error) {
  const std::lock_guard lock(mutex_);
  error = kSuccess;
  if (const auto known = functions_.find(kernel); known != functions_.end()) return known->second;
  const auto found = registered().find(kernel);
  if (found == registered().end()) return error = kNoBinary, nullptr;
  const auto [at, is_new] = modules_.try_emplace(found->second.image, nullptr);
  if (is_new) {
    error = call_.module_load(&at->second, found->second.image);
    if (error != kSuccess) return modules_.erase(at), nullptr;
  }
  Function function = nullptr;
  error = call_.module_function(&function, at->second, found->second.name);
  return error == kSuccess ? functions_[kernel] = function : nullptr;
}

}  // namespace ingot::cuda_driver

#if INGOT_CUDA_VERSION > 0
// NOLINTBEGIN: these names are nvcc's.
extern "C" {

struct IngotImageOfNvcc {
  int magic, version;
  const void* data;
  void* unused;
};

void** __cudaRegisterFatBinary(void* image) {
  return new void*(const_cast<void*>(static_cast<const IngotImageOfNvcc*>(image)->data));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** image, const char* host, char*, const char* name, int, void*, void*, void*,
                            void*, int*) {
  ingot::cuda_driver::registered()[host] = {*image, name};
}
// Host code would come here by kernel<<<...>>>, which nobody writes: rt_cuda.h launches through the device.
int __cudaGetKernel(void**, const void*) {
  std::abort();
}
int __cudaPopCallConfiguration(void*, void*, size_t*, void*) {
  std::abort();
}
int __cudaLaunchKernel(void*, ...) {
  std::abort();
}

}  // extern "C"
// NOLINTEND
#endif
