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
  /// The body holds values of the host that were read when it was made, for what this names, a literal: it
  /// belongs into no graph. nullptr: it holds none.
  const char* carries = nullptr;
};

/// Addresses inside of what a kernel takes: those of the device now, where the bytes are when it runs. What
/// they lie in must stay where it is.
class KernelAddresses {
 public:
  /// nullptr, or no bytes: nothing.
  void add(void*& address, int64_t bytes, bool is_written) {
    if (address == nullptr || bytes == 0) return;
    ranges_.push_back({address, bytes, is_written});
    places_.push_back(&address);
  }
  /// HostKernel::ranges.
  const std::vector<KernelRange>& ranges() const { return ranges_; }
  void bind(std::span<void* const> at) const {
    for (size_t i = 0; i < places_.size(); ++i) *places_[i] = at[i];
  }

 private:
  std::vector<KernelRange> ranges_;
  std::vector<void**> places_;
};

}  // namespace ingot
