// See param.h.
#include "optim/param.h"

#include <cstring>

#include "base/error.h"

namespace ingot {
namespace {
constexpr int64_t kAlign = 16;  // floats in 64 bytes
int64_t round_up(int64_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}
}  // namespace

FloatBuffer::FloatBuffer(int64_t count) : size_(count) {
  if (count == 0) return;
  const size_t bytes = static_cast<size_t>(round_up(count)) * sizeof(float);
  data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
  if (!data_)
    throw Error(fmt::format("no memory for {} bytes of optimizer state", bytes), "use a smaller model");
  std::memset(data_.get(), 0, bytes);
}

std::vector<int64_t> flat_offsets(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets{0};
  for (const int64_t count : counts) offsets.push_back(offsets.back() + round_up(count));
  return offsets;
}

}  // namespace ingot
