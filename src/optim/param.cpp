// See param.h.
#include "optim/param.h"

#include "base/round.h"

namespace ingot {
namespace {
constexpr int64_t kAlign = 16;  // floats in 64 bytes
}  // namespace

std::vector<int64_t> flat_offsets(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets{0};
  for (const int64_t count : counts) offsets.push_back(offsets.back() + round_up(count, kAlign));
  return offsets;
}

}  // namespace ingot
