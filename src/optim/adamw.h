// AdamW (Loshchilov & Hutter 2019): Adam with decoupled weight decay, fp32 moments, over many tensors in one
// pass.
//
//   g = grad_scale * grad
//   m <- m + (1 - beta1) (g - m)                 v <- beta2 v + (1 - beta2) g^2
//   w <- w (1 - lr wd) - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// Per element and step it reads w, m, v, grad and writes w, m, v and the compute copy: 28 bytes plus the
// copy. Bit-identical for any thread count and instruction set. Not thread-safe (one caller). Source:
// docs/optimizers.md.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "optim/param.h"

namespace ingot {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
};

/// One tensor of an AdamW step.
struct AdamWTensor {
  const ParamView* param;
  float* exp_avg;
  float* exp_avg_sq;
  double lr;  ///< of this tensor: schedule times the group's multiplier
  double weight_decay;
};

/// Throws Error for betas outside [0, 1) or eps <= 0.
void validate(const AdamWConfig& config);

/// Step number `t` (the first is 1) over all tensors; `grad_scale` = unscaling times clip factor, the only
/// place where gradients are divided. Returns one UpdateStat per tensor. Empty tensors are fine.
std::vector<UpdateStat> adamw_step(std::span<const AdamWTensor> tensors, const AdamWConfig& config, int64_t t,
                                   double grad_scale);

}  // namespace ingot
