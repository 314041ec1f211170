// What an optimizer's update takes: FLOPs of its products and bytes through memory, for plans and profiles.
#pragma once
#include <vector>

#include "optim/optimizer.h"

namespace ingot {

struct UpdateCost {
  int64_t elements = 0;  ///< of the parameters that this rank updates
  double flops = 0;      ///< of Newton-Schulz
  double bytes = 0;      ///< of this rank's weights, gradients and state
  bool bf16 = false;     ///< operands of its products; else f32
  double depth = 0;      ///< about the length of their sums: a matrix's shorter side, of most of the FLOPs
};

/// An update reads weights and gradients, writes weights, reads and
/// writes its state; the gradient's norm reads gradients once more.
UpdateCost update_cost(const Optimizer& optimizer);

/// Ranks of an update that gather a matrix of which each has a slice or a part, for Muon.
struct UpdateGather {
  const Communicator* ranks;
  double bytes;  ///< of the whole
};
std::vector<UpdateGather> update_gathers(const Optimizer& optimizer);

}  // namespace ingot
