// Kernels whose body is host code, for devices that run such (Device::runs_host_kernels): on the cpu what a
// kernel is anyway; on the simulated device the way in which all kernels run there, since its memory is out
// of the host's reach but inside of one.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ingot {

/// Bytes of the device that a kernel reads, and writes if it says so.
struct KernelRange {
  void* memory = nullptr;  ///< nullptr: nothing
  int64_t bytes = 0;
  bool is_written = false;
};

struct HostKernel {
  std::vector<KernelRange> ranges;
  /// at[i]: where the bytes of range i are while the body runs. It reaches the device's memory in no other
  /// way and calls no device; what else it uses must stay as it is until an event recorded later is
  /// synchronized.
  std::function<void(std::span<void* const> at)> body;
};

}  // namespace ingot
