// Memory of the launches of one call: lists that kernels read, and scratch. It is the memory of the device
// that is the thread's launcher (launcher.h), or the host's where there is none and the emulator runs kernels
// at once. Not thread-safe.
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
};

/// Lists of the same calls, made again and again, which stay on the device: of two rounds of calls in one
/// order the second copies what is other than in the first, byte by byte: their elements have no bytes that
/// stand between values. Not thread-safe. The device must outlive it.
class KeptLists {
 public:
  KeptLists() = default;
  ~KeptLists();
  KeptLists(const KeptLists&) = delete;
  KeptLists& operator=(const KeptLists&) = delete;

  /// The next call is the first of a round.
  void restart() { next_ = 0; }
  /// Where these bytes of the host are on the device.
  void* keep(GpuMemory& device, const void* host, int64_t bytes);

 private:
  struct List {
    std::vector<std::byte> host;
    void* there = nullptr;
  };
  GpuMemory* device_ = nullptr;
  std::vector<List> lists_;
  size_t next_ = 0;
};

class GpuWorkspace {
 public:
  /// `kept`: where lists stay once this is gone; nullptr: nowhere.
  explicit GpuWorkspace(KeptLists* kept = nullptr)
      : device_(dynamic_cast<GpuMemory*>(gpu_launcher())), kept_(kept) {}
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

 private:
  void* take(int64_t bytes);
  void* copy(const void* host, int64_t bytes);

  GpuMemory* const device_;  ///< nullptr: the host
  KeptLists* const kept_;
  std::vector<void*> borrowed_;
  std::vector<std::unique_ptr<std::byte[]>> own_;
};

}  // namespace ingot
