// See pinned_memory.h.
#include "device/cuda/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/log.h"
#include "device/memory/pages.h"

namespace ingot {

using namespace cuda_driver;

PinnedMemory::~PinnedMemory() {
  for (const auto& [block, size] : blocks_) {
    call_.unpin(block);
    release_addresses(block, size);
  }
}

int64_t PinnedMemory::block_bytes(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kPage))));
}

void* PinnedMemory::take(int64_t bytes) {
  const int64_t size = block_bytes(bytes);
  const std::lock_guard lock(mutex_);
  if (std::vector<void*>& unused = unused_[size]; !unused.empty()) {
    void* const block = unused.back();
    unused.pop_back();
    return block;
  }
  if (size >= refused_) return nullptr;
  void* const block = reserve_addresses(size, true);  // pages of its own: no page can be pinned twice
  const Result result = call_.pin(block, static_cast<size_t>(size), 0);
  if (result != kSuccess) {
    release_addresses(block, size);
    log_refusal(size, result);
    return nullptr;
  }
  pinned_[block] = blocks_[block] = size;
  return block;
}

bool PinnedMemory::give_back(void* block, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!blocks_.contains(block)) return false;
  unused_[block_bytes(bytes)].push_back(block);
  return true;
}

void PinnedMemory::log_refusal(int64_t size, Result why) {
  if (refused_ == kNone)
    log::warn(
        "device 'cuda' ({}): the driver refuses to pin {} KiB of the host's memory: {}. Copies go through "
        "memory that is not pinned: the host waits at each of them until the GPU has come to it, and steps "
        "take longer. `ulimit -l` shows how much memory a process may lock",
        gpu_, size >> 10, text_of(call_, why));
  refused_ = std::min(refused_, size);
}

Result PinnedMemory::pin(void* host, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const Result result = call_.pin(host, static_cast<size_t>(bytes), 0);
  if (result == kSuccess) pinned_[host] = bytes;
  return result;
}

Result PinnedMemory::unpin(void* host) {
  const std::lock_guard lock(mutex_);
  pinned_.erase(host);
  return call_.unpin(host);
}

bool PinnedMemory::holds(const void* first, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto after = pinned_.upper_bound(first);
  if (after == pinned_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return static_cast<const char*>(first) + bytes <= static_cast<const char*>(begin) + size;
}

}  // namespace ingot
