// What the parts of a tape share: its options, what has been recorded, and its values. Internal to the tape.
#pragma once
#include <vector>

#include "tape/slots.h"
#include "tape/tape.h"

namespace ingot {

struct TapeState {
  Arena& arena;
  const TapeOptions options;
  std::vector<Node> nodes = {};
  std::vector<Segment> segments = {};
  bool in_backward = false;
  Slots slots{arena, options.device};

  Node& node(int32_t index) { return nodes[static_cast<size_t>(index)]; }
  const Node& node(int32_t index) const { return nodes[static_cast<size_t>(index)]; }
  const Segment& segment(int32_t index) const { return segments[static_cast<size_t>(index)]; }
  int32_t current_segment() const { return static_cast<int32_t>(segments.size()) - 1; }
  bool has_memory() const { return options.device != DeviceKind::null; }
};

}  // namespace ingot
