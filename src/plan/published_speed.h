// The speeds of [Megatron MoE], table 11, beside those of plans of the same layouts: one constant
// for each device and type, the share of the dense peak that products reach, is fitted to the first row; the
// others follow. What no plan has lies in that constant: quantisation, the host, kernels that are not fused.
#pragma once
#include <string>
#include <vector>

#include "measure/cluster.h"

namespace ingot::published {

struct Speed {
  std::string what;                 ///< model, type, layout
  double printed = 0, planned = 0;  ///< TFLOP/s of the model on a device
  double share = 0;                 ///< of the dense peak
  bool fitted = false;              ///< share comes from this row
  double residual() const { return planned / printed - 1; }
};

/// The rows that ran on this cluster, known by the first word of its name. Throws Error where there are none.
std::vector<Speed> speeds(const Cluster& cluster);
std::string to_text(const std::vector<Speed>& speeds);

}  // namespace ingot::published
