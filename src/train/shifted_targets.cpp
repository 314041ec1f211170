// See shifted_targets.h.
#include "train/shifted_targets.h"

#include <algorithm>

namespace ingot {
namespace {

ShiftedTargets shifted(const data::Batch& batch, int64_t depth) {
  ShiftedTargets a;
  a.ids.assign(batch.tokens.size(), 0);
  a.targets.assign(batch.tokens.size(), data::kMasked);
  for (const data::Span& s : batch.spans) {
    const int64_t count = std::max<int64_t>(0, s.end - s.begin - depth);
    std::copy_n(batch.tokens.begin() + s.begin + depth, count, a.ids.begin() + s.begin);
    std::copy_n(batch.targets.begin() + s.begin + depth, count, a.targets.begin() + s.begin);
  }
  return a;
}

}  // namespace

std::vector<ShiftedTargets> shifted_targets(const data::Batch& batch, const MtpConfig& mtp) {
  std::vector<ShiftedTargets> all;
  for (int64_t depth = 1; depth <= mtp.depths; ++depth) {
    ShiftedTargets a = shifted(batch, depth);
    const auto valid = std::count_if(a.targets.begin(), a.targets.end(), [](int32_t t) { return t >= 0; });
    if (valid > 0)
      a.weight = mtp.coefficient / static_cast<double>(mtp.depths) * batch.loss_divisor() /
                 static_cast<double>(valid);
    all.push_back(std::move(a));
  }
  return all;
}

}  // namespace ingot
