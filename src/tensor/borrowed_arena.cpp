// See borrowed_arena.h.
#include "tensor/borrowed_arena.h"

namespace ingot {
namespace {

constexpr int64_t kBorrowed = -2;  // less the offset: the Block::id of what lies in the memory

}  // namespace

Block BorrowedArena::allocate(int64_t bytes, const char* category) {
  const int64_t size = round_up_block(bytes);
  if (size == 0 || !gaps_.fits(size, static_cast<int64_t>(memory_.size()))) {
    const Block block = heap_.allocate(bytes, category);
    count(size);
    return block;
  }
  const int64_t offset = gaps_.take(size);
  count(size);
  std::byte* const data = memory_.data() + offset;
  device_.begin_use(data, size, category);
  return {data, size, kBorrowed - offset};
}

void BorrowedArena::release(const Block& block) {
  count(-block.bytes);
  if (block.id >= 0) return heap_.release(block);
  device_.end_use(block.data, block.bytes);
  gaps_.give_back(kBorrowed - block.id, block.bytes);
}

}  // namespace ingot
