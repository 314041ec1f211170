// attention's implementations, best first, and what they share (internal to the folder).
#pragma once
#include <cmath>
#include <vector>

#include "device/attention/attention.h"
#include "ops/attention/attention.h"
#include "tape/op.h"

namespace ingot {

std::vector<Kernel> attention_kernels();
Kernel attention_reference();

inline double attention_scale(const AttentionAttr& attr) {
  return attr.scale != 0 ? attr.scale : 1 / std::sqrt(static_cast<double>(attr.head_width));
}

inline AttentionWindow attention_window(const AttentionAttr& attr, const SequenceSpan& span) {
  return {attr.window, attr.window_block, span.phase};
}

}  // namespace ingot
