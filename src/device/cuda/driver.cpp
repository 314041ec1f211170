// See driver.h.
#include "device/cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "device/cuda/kernel_images.h"

namespace ingot::cuda_driver {
namespace {

constexpr int kComputeMajor = 75, kComputeMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
constexpr int kMultiprocessors = 16;                   // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr const char* kLeaveOut = "leave --device out to compute on the CPU; ";

std::string version_of(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void* symbol_of(void* library, const char* name, const std::string& path) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr)
    throw Error(fmt::format("device 'cuda': the driver '{}' lacks the function {}", path, name),
                fmt::format("{}a driver of CUDA {} or later has it", kLeaveOut, version_of(kOldestVersion)));
  return symbol;
}

Functions functions_of(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    throw Error(fmt::format("device 'cuda': no driver of an NVIDIA GPU: {}",
                            reason != nullptr ? reason : "the library cannot be opened"),
                std::string(kLeaveOut) +
                    "a machine with a GPU needs NVIDIA's driver, whose libcuda.so.1 is searched on "
                    "LD_LIBRARY_PATH and in the system's folders");
  }
  Functions call;
#define INGOT_CUDA_SYMBOL(member, name, parameters) \
  call.member = reinterpret_cast<decltype(call.member)>(symbol_of(library, name, path));
  INGOT_CUDA_FUNCTIONS(INGOT_CUDA_SYMBOL)
#undef INGOT_CUDA_SYMBOL
  call.launch_host_code =
      reinterpret_cast<decltype(call.launch_host_code)>(::dlsym(library, "ingot_launch_host_code"));
  return call;
}

}  // namespace

std::string Driver::version_text() const {
  return version_of(version);
}

std::string Driver::architecture() const {
  return fmt::format("sm_{}", compute);
}

std::string text_of(const Functions& call, Result error) {
  const char *name = nullptr, *text = nullptr;
  call.error_name(error, &name);
  call.error_text(error, &text);
  return fmt::format("{} ({}): {}", name != nullptr ? name : "an error without a name", error,
                     text != nullptr ? text : "the driver does not say what it is");
}

Driver open_driver(const std::string& library) {
  Driver d{.call = functions_of(library), .library = library};
  const Functions& call = d.call;
  const auto require = [&](Result result, const char* what) {
    if (result == kSuccess) return;
    throw Error(fmt::format("device 'cuda': the driver cannot {}: {}", what, text_of(call, result)),
                std::string(kLeaveOut) + "`nvidia-smi` shows whether the driver sees the GPU");
  };
  const Result started = call.init(0);
  if (started != kNoDevice) require(started, "start");
  require(call.version(&d.version), "say its version");
  const int needed = std::max(kOldestVersion, oldest_version_for_kernels());
  if (d.version < needed)
    throw Error(fmt::format("device 'cuda': the driver is of CUDA {}, and this program needs {} or later",
                            version_of(d.version), version_of(needed)),
                std::string(kLeaveOut) + "a newer driver can be installed beside what uses the old one");
  int count = 0;
  if (started == kSuccess) require(call.device_count(&count), "count GPUs");
  if (count == 0)
    throw Error(
        "device 'cuda': the driver finds no GPU",
        std::string(kLeaveOut) + "`nvidia-smi` lists what there is, and CUDA_VISIBLE_DEVICES may hide it");
  require(call.device_get(&d.device, 0), "open the first GPU");
  std::array<char, 256> name{};
  require(call.device_name(name.data(), static_cast<int>(name.size()) - 1, d.device), "name the GPU");
  d.name = name.data();
  int major = 0, minor = 0;
  require(call.device_attribute(&major, kComputeMajor, d.device), "say the GPU's architecture");
  require(call.device_attribute(&minor, kComputeMinor, d.device), "say the GPU's architecture");
  d.compute = 10 * major + minor;
  require(call.device_attribute(&d.multiprocessors, kMultiprocessors, d.device), "count multiprocessors");
  return d;
}

}  // namespace ingot::cuda_driver
