// See buffer.h.
#include "tensor/buffer.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "device/memory/pages.h"

namespace ingot {

Buffer::Buffer(int64_t bytes, Backing backing, DeviceKind device, const char* what)
    : device_(backing == Backing::memory ? device : DeviceKind::cpu),
      what_(what),
      bytes_((bytes + 63) / 64 * 64),
      backing_(backing) {
  if (backing != Backing::memory || device_ != DeviceKind::cpu) {
    data_ = reserve_addresses(bytes_, backing != Backing::nothing);
    return;
  }
  data_ = system_allocate(bytes_);
  if (data_ != nullptr && !is_mapped(bytes_)) std::memset(data_, 0, static_cast<size_t>(bytes_));
}

Buffer::~Buffer() {
  if (there_ != nullptr) {
    device_of(device_).release(there_, bytes_);
    device_of(device_).name_moved(data_, bytes_, what_, false);
  }
  const bool reserved = backing_ != Backing::memory || device_ != DeviceKind::cpu;
  (reserved ? release_addresses : system_release)(data_, bytes_);
}

Buffer::Buffer(Buffer&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)),
      there_(std::exchange(o.there_, nullptr)),
      on_device_(std::exchange(o.on_device_, false)),
      device_(o.device_),
      what_(o.what_),
      bytes_(std::exchange(o.bytes_, 0)),
      backing_(o.backing_) {}

Buffer& Buffer::operator=(Buffer&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(there_, o.there_);
  std::swap(on_device_, o.on_device_);
  std::swap(device_, o.device_);
  std::swap(what_, o.what_);
  std::swap(bytes_, o.bytes_);
  std::swap(backing_, o.backing_);
  return *this;
}

void* Buffer::on_device() const {
  INGOT_CHECK(device_ != DeviceKind::cpu, "a buffer of the host alone");
  if (on_device_ || bytes_ == 0) return there_;
  Device& device = device_of(device_);
  if (there_ == nullptr) there_ = device.allocate(bytes_);
  device.upload(there_, data_, bytes_);
  device.count_unplanned_copy();
  close_addresses(data_, bytes_);
  device.name_moved(data_, bytes_, what_, true);
  on_device_ = true;
  return there_;
}

void Buffer::bring_back() const {
  Device& device = device_of(device_);
  open_addresses(data_, bytes_);
  device.name_moved(data_, bytes_, what_, false);
  on_device_ = false;
  device.download(data_, there_, bytes_);
  device.count_unplanned_copy();
}

void Buffer::discard(int64_t begin, int64_t end) {
  INGOT_CHECK(backing_ != Backing::memory && 0 <= begin && begin <= end && end <= bytes_, "[{}, {}) of {}",
              begin, end, bytes_);
  if (backing_ == Backing::sparse) give_back_pages(static_cast<uint8_t*>(data_) + begin, end - begin);
}

}  // namespace ingot
