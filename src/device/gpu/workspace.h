// Memory of the launches of one call: lists that kernels read, scratch, and results for the host. It is that
// of the thread's launcher (launcher.h), or the host's where there is none and the emulator runs kernels at
// once. Plain. Not thread-safe.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/gpu/launcher.h"

namespace ingot {

class GpuWorkspace {
 public:
  GpuWorkspace() : launcher_(gpu_launcher()) {}
  /// What the stream is asked for later may use the memory again.
  ~GpuWorkspace();
  GpuWorkspace(const GpuWorkspace&) = delete;
  GpuWorkspace& operator=(const GpuWorkspace&) = delete;

  /// A copy of values of the host.
  template <class T>
  T* list(std::span<const T> values) {
    return static_cast<T*>(copy(values.data(), static_cast<int64_t>(values.size_bytes())));
  }
  template <class T>
  T* list(const std::vector<T>& values) {
    return list(std::span<const T>(values));
  }
  /// Not initialised; NaN on the host.
  template <class T>
  T* scratch(int64_t count) {
    return static_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }
  /// Values after the launches so far, for which it waits.
  template <class T>
  std::vector<T> read(const T* from, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    get(values.data(), from, count * static_cast<int64_t>(sizeof(T)));
    return values;
  }

 private:
  void* take(int64_t bytes);
  void* copy(const void* host, int64_t bytes);
  void get(void* to, const void* from, int64_t bytes) const;

  GpuLauncher* const launcher_;
  std::vector<void*> borrowed_;
  std::vector<std::unique_ptr<std::byte[]>> own_;
};

}  // namespace ingot
