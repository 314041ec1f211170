// Sparse buffers: memory is added at the first write, page by page, and is given back without a change to its
// neighbours.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "tensor/buffer.h"

namespace ingot::test::sparse_buffer_test {

int64_t resident_bytes(const Buffer& buffer) {
  const int64_t page = ::sysconf(_SC_PAGESIZE), pages = (buffer.bytes() + page - 1) / page;
  std::vector<unsigned char> in_memory(static_cast<size_t>(pages));
  EXPECT_EQ(::mincore(buffer.data(), static_cast<size_t>(buffer.bytes()), in_memory.data()), 0);
  int64_t n = 0;
  for (const unsigned char p : in_memory) n += p & 1;
  return n * page;
}

TEST(SparseBuffer, HasTheMemoryThatWasWrittenAndNotGivenBack) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  Buffer buffer(16 * kMiB, Backing::sparse);
  char* data = static_cast<char*>(buffer.data());
  EXPECT_EQ(resident_bytes(buffer), 0);
  std::memset(data + 4 * kMiB, 7, 8 * kMiB);
  EXPECT_EQ(resident_bytes(buffer), 8 * kMiB);
  buffer.discard(5 * kMiB + 100, 11 * kMiB - 100);
  EXPECT_LE(resident_bytes(buffer), 2 * kMiB + 2 * ::sysconf(_SC_PAGESIZE));
  for (const int64_t at : {4 * kMiB, 5 * kMiB + 99, 11 * kMiB - 100, 12 * kMiB - 1})
    EXPECT_EQ(data[at], 7) << at;
  std::memset(data, 1, 16 * kMiB);  // given back memory can be written again
  EXPECT_EQ(resident_bytes(buffer), 16 * kMiB);
}

}  // namespace ingot::test::sparse_buffer_test
