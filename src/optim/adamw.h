// AdamW (Loshchilov & Hutter 2019): Adam with decoupled weight decay, and AdEMAMix (Pagliardini et al. 2024),
// which adds a slow average of the gradient; over many tensors in one pass.
//
//   g = grad_scale * grad
//   m <- m + (1 - beta1) (g - m)                 v <- beta2 v + (1 - beta2) g^2
//   w <- w (1 - lr wd) - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// AdEMAMix takes m / (1 - beta1^t) + alpha(t) s in place of m / (1 - beta1^t):
//   s <- s + (1 - beta3(t)) (g - s)
//   alpha(t) = alpha min(t / T, 1)               the half-life of beta3(t) grows linearly from beta1's to
//                                                beta3's over T steps
//
// Moments are fp32 or bf16 (ValueStorage). With fp32 a step reads w, m, v and g and writes w, m, v and the
// compute copy: 28 bytes per element, plus the copy. The bits are the same for any thread count and
// instruction set. Not thread-safe (one caller). Sources: docs/optimizers.md.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/range.h"
#include "optim/param.h"

namespace ingot {

struct AdamWNumbers;  // optim/kernels.h

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  template <class Visitor>
  void visit(Visitor& v) {
    v("beta1", beta1, "decay of the first moment", below_one());
    v("beta2", beta2, "decay of the second moment", below_one());
    v("eps", eps, "added to the root of the second moment", positive(1e3));
  }
};

/// The slow average of AdEMAMix. The rise of both over `warmup` steps (T) keeps the first steps stable. In a
/// configuration 0 stands for the whole run; the functions below take it as no rise.
struct AdEMAMixConfig {
  double beta3 = 0.9999;
  double alpha = 5;
  int64_t warmup = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("beta3", beta3, "decay of the slow average", below_one());
    v("alpha", alpha, "weight of the slow average", up_to(1e6));
    v("warmup", warmup, "steps over which beta3 and alpha rise; 0: the whole run", up_to(bounds::kSteps));
  }
};

/// One tensor of an AdamW step.
struct AdamWTensor {
  const ParamView* param;
  StoredValues exp_avg;
  StoredValues exp_avg_sq;
  double lr;  ///< of this tensor: schedule times the group's multiplier
  double weight_decay;
  StoredValues exp_avg_slow = {};  ///< AdEMAMix; absent: AdamW
  int64_t index = 0;               ///< of the parameter in its optimizer
};

/// Throws Error for betas outside [0, 1) or eps <= 0.
void validate(const AdamWConfig& config);
/// Throws Error for a beta3 outside [0, 1), or a negative alpha or warmup.
void validate(const AdEMAMixConfig& config);

/// Of step number t >= 1.
AdamWNumbers adamw_numbers(const AdamWConfig& config, const AdEMAMixConfig& mix, int64_t t);
/// alpha(t) and beta3(t) of step number t >= 1.
double ademamix_alpha(const AdEMAMixConfig& config, int64_t t);
double ademamix_beta3(const AdEMAMixConfig& config, double beta1, int64_t t);

/// Step number `t` (the first is 1) over all tensors; `grad_scale` = unscaling times clip factor, the only
/// place where gradients are divided. Returns one UpdateStat per tensor. Empty tensors are fine. `mix` is for
/// the tensors with a slow average.
std::vector<UpdateStat> adamw_step(std::span<const AdamWTensor> tensors, const AdamWConfig& config, int64_t t,
                                   double grad_scale, const AdEMAMixConfig& mix = {});

}  // namespace ingot
