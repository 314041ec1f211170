// See workspace.h.
#include "device/gpu/workspace.h"

#include <cstring>

namespace ingot {

GpuWorkspace::~GpuWorkspace() {
  try {
    for (void* memory : borrowed_) device_->give_back(memory);
  } catch (...) {  // a device that fails says so in every later call
  }
}

void* GpuWorkspace::take(int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (device_ != nullptr) return borrowed_.emplace_back(device_->borrow(bytes));
  const auto count = static_cast<size_t>(bytes);
  own_.push_back(std::make_unique<std::byte[]>(count));
  std::memset(own_.back().get(), 0xFF, count);
  return own_.back().get();
}

void* GpuWorkspace::copy(const void* host, int64_t bytes) {
  void* const to = take(bytes);
  if (bytes == 0) return to;
  if (device_ != nullptr)
    device_->put(to, host, bytes);
  else
    std::memcpy(to, host, static_cast<size_t>(bytes));
  return to;
}

void GpuWorkspace::get(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  if (device_ != nullptr)
    device_->get(to, from, bytes);
  else
    std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace ingot
