// Memory of the host to which a device copies what a step leaves there: a block that the device lends.
#pragma once
#include "device/device.h"

namespace ingot {

class HostBlock {
 public:
  HostBlock(Device& device, int64_t bytes) : device_(device), bytes_(bytes), data_(device.take_host(bytes)) {}
  /// No copy writes the block any more.
  ~HostBlock() { device_.give_host(data_, bytes_); }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  void* data() const { return data_; }

 private:
  Device& device_;
  const int64_t bytes_;
  void* const data_;
};

}  // namespace ingot
