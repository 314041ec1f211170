// Memory of the launches of one call: lists that kernels read, scratch, and results for the host. It is the
// memory of the device that is the thread's launcher (launcher.h), or the host's where there is none and the
// emulator runs kernels at once. Not thread-safe.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/gpu/launcher.h"

namespace ingot {

/// A device's, for what a thread asks its compute stream for.
class GpuMemory {
 public:
  virtual ~GpuMemory() = default;
  /// For what is asked for from now on, until give_back() is asked for there. Error: out of memory.
  virtual void* borrow(int64_t bytes) = 0;
  virtual void give_back(void* memory) = 0;
  /// Copies from the host; the host's bytes may change once this returns.
  virtual void put(void* to, const void* from, int64_t bytes) = 0;
  /// Copies to the host what is there after all that was asked for, and waits.
  virtual void get(void* to, const void* from, int64_t bytes) = 0;
};

class GpuWorkspace {
 public:
  GpuWorkspace() : device_(dynamic_cast<GpuMemory*>(gpu_launcher())) {}
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

  GpuMemory* const device_;  ///< nullptr: the host
  std::vector<void*> borrowed_;
  std::vector<std::unique_ptr<std::byte[]>> own_;
};

}  // namespace ingot
