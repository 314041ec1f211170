// See parameter_chunks.h.
#include "ops/parameter_chunks.h"

#include <algorithm>

namespace ingot {

void combine_parameter_chunks(const float* partials, int64_t chunks, int64_t stride, int64_t width,
                              const GradSlot& slot) {
  if (!slot.wanted()) return;
  INGOT_CHECK(slot.tensor.numel() == width, "a sum of {} for {}", width, slot.tensor.meta.str());
  constexpr int64_t kBlock = 256;
  auto* to = slot.tensor.as<float>();
  for (int64_t begin = 0; begin < width; begin += kBlock) {
    const int64_t n = std::min(kBlock, width - begin);
    float sum[kBlock] = {};
    for (int64_t c = 0; c < chunks; ++c)
      for (int64_t i = 0; i < n; ++i) sum[i] += partials[c * stride + begin + i];
    for (int64_t i = 0; i < n; ++i) to[begin + i] = slot.accumulate ? to[begin + i] + sum[i] : sum[i];
  }
}

}  // namespace ingot
