// Gradient clipping by the global L2 norm, and the search for the first gradient that is not finite.
//
// The sum of squares is taken per tensor in double over chunks fixed by the tensor's size, combined in order:
// the same bits for any number of threads and any instruction set. Squares of finite floats cannot overflow a
// double, so a sum is not finite exactly when the tensor holds a NaN or an infinity.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optim/param.h"

namespace ingot {

struct GradNorm {
  std::vector<double> sum_squares;  ///< per parameter, of the raw (unscaled) gradient
  double norm = 0;                  ///< of all gradients times grad_scale
  int64_t first_bad = -1;           ///< index of the first parameter with a non-finite gradient, or -1
  bool finite() const { return first_bad < 0; }
  /// norm and first_bad from sum_squares, in order.
  void combine(double grad_scale);
};

/// The norm over all `params`. grad_scale is the unscaling (1 / valid tokens), applied to the norm only.
/// Ranks that hold different parameters add their sum_squares before taking the root; a tied or replicated
/// tensor must be counted once.
GradNorm gradient_norm(std::span<const ParamView> params, double grad_scale);

/// min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 where max_norm is 0.
double clip_factor(double norm, double max_norm);

struct ClipFactor {
  bool is_finite;
  double factor;
};
/// The factor from the sums of squares of all gradients, and whether these and the loss are finite.
ClipFactor clip_of(std::span<const double> sum_squares, double grad_scale, double max_norm, double loss);

/// For the message when gradients are not finite: names the first bad tensor, how many of its elements are
/// bad, the first one's index and value.
std::string describe_bad_gradient(std::span<const ParamView> params, const GradNorm& norm);

}  // namespace ingot
