// See fake_cuda.h.
#include "support/fake_cuda.h"

#include <dlfcn.h>

namespace ingot::test {

FakeCuda& fake_cuda() {
  static void* const library = ::dlopen(kFakeCuda, RTLD_NOW | RTLD_LOCAL);
  using State = FakeCuda* (*)();
  return *reinterpret_cast<State>(::dlsym(library, "ingot_fake_cuda"))();
}

FakeCublasLt& fake_cublaslt() {
  static void* const library = ::dlopen(kFakeCublasLt, RTLD_NOW | RTLD_LOCAL);
  using State = FakeCublasLt* (*)();
  return *reinterpret_cast<State>(::dlsym(library, "ingot_fake_cublaslt"))();
}

}  // namespace ingot::test
