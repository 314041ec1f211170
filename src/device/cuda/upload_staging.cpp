// See upload_staging.h.
#include "device/cuda/upload_staging.h"

#include <cstring>

namespace ingot {

const void* UploadStaging::stage(const void* from, int64_t bytes) {
  if (bytes > kLargest) return nullptr;
  const int64_t size = PinnedMemory::block_bytes(bytes);
  void* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ + size > kMost) return nullptr;
    data = pinned_.take(bytes);
    if (data == nullptr) return nullptr;
    bytes_ += size;
    OfThread& mine = threads_[std::this_thread::get_id()];
    mine.on_their_way.push_back({++mine.uploads, data, size});
  }
  std::memcpy(data, from, static_cast<size_t>(bytes));
  return data;
}

UploadStaging::Moment UploadStaging::now() const {
  const std::thread::id thread = std::this_thread::get_id();
  const std::lock_guard lock(mutex_);
  const auto mine = threads_.find(thread);
  return {thread, mine != threads_.end() ? mine->second.uploads : 0};
}

void UploadStaging::passed(const Moment& moment) {
  const std::lock_guard lock(mutex_);
  const auto of = threads_.find(moment.thread);
  if (of == threads_.end()) return;
  std::deque<Block>& blocks = of->second.on_their_way;
  for (; !blocks.empty() && blocks.front().upload <= moment.uploads; blocks.pop_front()) {
    pinned_.give_back(blocks.front().data, blocks.front().bytes);
    bytes_ -= blocks.front().bytes;
  }
}

}  // namespace ingot
