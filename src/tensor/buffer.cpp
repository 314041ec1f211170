// See buffer.h.
#include "tensor/buffer.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "device/memory/pages.h"

namespace ingot {

Buffer::Buffer(int64_t bytes, Backing backing) : bytes_((bytes + 63) / 64 * 64), backing_(backing) {
  if (backing != Backing::memory) {
    data_ = reserve_addresses(bytes_, backing == Backing::sparse);
    return;
  }
  data_ = system_allocate(bytes_);
  if (data_ != nullptr && !is_mapped(bytes_)) std::memset(data_, 0, static_cast<size_t>(bytes_));
}

Buffer::~Buffer() {
  (backing_ == Backing::memory ? system_release : release_addresses)(data_, bytes_);
}

Buffer::Buffer(Buffer&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)), backing_(o.backing_) {}

Buffer& Buffer::operator=(Buffer&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(bytes_, o.bytes_);
  std::swap(backing_, o.backing_);
  return *this;
}

void Buffer::discard(int64_t begin, int64_t end) {
  INGOT_CHECK(backing_ != Backing::memory && 0 <= begin && begin <= end && end <= bytes_, "[{}, {}) of {}",
              begin, end, bytes_);
  if (backing_ == Backing::sparse) give_back_pages(static_cast<uint8_t*>(data_) + begin, end - begin);
}

}  // namespace ingot
