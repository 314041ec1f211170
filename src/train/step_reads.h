// What the host reads of a training step on a device: copies that begin when they are asked for, beside the
// kernels, to memory that the device lends, and are waited for together. On the cpu every read is at once.
#pragma once
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "device/host_block.h"
#include "tensor/tensor.h"

namespace ingot {

/// Not thread-safe.
class StepReads {
 public:
  /// Gets the tensors where host code can read them, in the order of the read; undefined ones stay so.
  using Use = std::function<void(std::span<const Tensor>)>;

  explicit StepReads(Device& device) : device_(device) {}
  /// Waits: until then kernels may read what keep() was given.
  ~StepReads();
  StepReads(const StepReads&) = delete;
  StepReads& operator=(const StepReads&) = delete;

  /// The tensors as they are when the device has done what it was asked for so far.
  void read(std::initializer_list<Tensor> tensors, Use use);
  /// Kernels read this host memory until finish().
  void keep(std::shared_ptr<const void> memory) {
    if (device_.kind() != DeviceKind::cpu) kept_.push_back(std::move(memory));
  }
  /// Whether a use waits for finish().
  bool pending() const { return !reads_.empty(); }
  /// Waits once for the device and calls the uses, in the order of their reads. Throws what kernels threw.
  void finish();

 private:
  struct Read {
    std::vector<Tensor> tensors;  ///< on the host
    Use use;
  };
  void wait();

  Device& device_;
  std::deque<HostBlock> copies_;
  std::vector<Read> reads_;
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace ingot
