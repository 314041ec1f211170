// See cublaslt.h.
#include "device/cuda/cublaslt.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"

namespace ingot::cublaslt {
namespace {

constexpr const char* kWithoutIt =
    "only what compares with it is left out; CUDA's toolkit and pip's nvidia-cublas have it, on "
    "LD_LIBRARY_PATH or by INGOT_CUBLASLT_LIBRARY=PATH";

void* function_of(void* library, const char* name, const std::string& path) {
  void* const function = ::dlsym(library, name);
  if (function == nullptr)
    throw Error(fmt::format("cuBLASLt: '{}' lacks the function {}", path, name), kWithoutIt);
  return function;
}

std::string version_of(size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace

std::string Library::version_text() const {
  return version_of(number);
}

std::string Library::text_of(Status status) const {
  const char* const name = status_name(status);
  return fmt::format("{} ({})", name != nullptr ? name : "an error without a name", status);
}

std::vector<std::string> library_names() {
  if (const char* const named = std::getenv("INGOT_CUBLASLT_LIBRARY")) return {named};
  return {"libcublasLt.so.13", "libcublasLt.so.12"};
}

Library open_library(const std::vector<std::string>& names) {
  void* opened = nullptr;
  Library library;
  std::string reasons;
  for (size_t i = 0; i < names.size() && opened == nullptr; ++i) {
    opened = ::dlopen(names[i].c_str(), RTLD_NOW | RTLD_LOCAL);
    library.path = names[i];
    const char* const reason = opened == nullptr ? ::dlerror() : nullptr;
    if (opened == nullptr) reasons += fmt::format("{}{}", i > 0 ? "; " : "", reason != nullptr ? reason : "");
  }
  if (opened == nullptr) throw Error(fmt::format("cuBLASLt: no library: {}", reasons), kWithoutIt);
#define INGOT_CUBLASLT_SYMBOL(result, member, name, parameters) \
  library.member = reinterpret_cast<decltype(library.member)>(function_of(opened, name, library.path));
  INGOT_CUBLASLT_FUNCTIONS(INGOT_CUBLASLT_SYMBOL)
#undef INGOT_CUBLASLT_SYMBOL
  library.number = library.version();
  library.is_faked = ::dlsym(opened, "ingot_fake_cublaslt") != nullptr;
  if (library.number < kOldestLibrary)
    throw Error(fmt::format("cuBLASLt: '{}' is version {}, and {} or later is needed", library.path,
                            version_of(library.number), version_of(kOldestLibrary)),
                kWithoutIt);
  return library;
}

}  // namespace ingot::cublaslt
