// attention's implementations, best first, and what they share (internal to the folder).
#pragma once
#include <cmath>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/op.h"

namespace ingot {

std::vector<Kernel> attention_kernels();
Kernel attention_reference();

inline double attention_scale(const AttentionAttr& attr) {
  return attr.scale != 0 ? attr.scale : 1 / std::sqrt(static_cast<double>(attr.head_width));
}

/// First key that token `t` of a sequence sees.
inline int64_t attention_first_key(const AttentionAttr& attr, int64_t t) {
  return attr.window > 0 && t >= attr.window ? t - attr.window + 1 : 0;
}

}  // namespace ingot
