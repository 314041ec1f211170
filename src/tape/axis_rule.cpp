// See axis_rule.h.
#include "tape/axis_rule.h"

namespace ingot {

using enum AxisType;

AxisType cotangent_of(AxisType type) {
  switch (type) {
    case replicate:
    case partial:
      return replicate;
    case shared:
    case halo:
      return partial;
    case rows:
    case shards:
      return type;
  }
  return type;
}

bool needs_transfer(const AxisChange& c) {
  if (c.from == c.to || c.to == partial) return false;  // a rank's own shard is a summand too
  return c.from != replicate && c.from != shared && !(c.from == halo && c.to == rows);
}

}  // namespace ingot
