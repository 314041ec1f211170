// See param.h.
#include "optim/param.h"

namespace ingot {
namespace {
constexpr int64_t kAlign = 16;  // floats in 64 bytes
int64_t round_up(int64_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}
}  // namespace

std::vector<int64_t> flat_offsets(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets{0};
  for (const int64_t count : counts) offsets.push_back(offsets.back() + round_up(count));
  return offsets;
}

}  // namespace ingot
