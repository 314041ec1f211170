// The balance of one expert: the text of the kernels of every instruction set and of GPUs; formulas:
// balance.h.
#pragma once
#include "optim/adamw_element.h"
#include "optim/power.h"

namespace ingot::INGOT_ISA {

INGOT_INLINE double balance_root(double x) {
#if defined(INGOT_ISA_gpu)
  return sqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

/// Of update number t; not of the sign rule.
INGOT_INLINE AdamWFactors balance_factors(const BalanceArgs& a, int64_t t) {
  const double time = static_cast<double>(t);
  AdamWFactors f{};
  f.scale = 1, f.decay = 1;
  f.c1 = static_cast<float>(1.0 - a.beta1);
  f.b2 = static_cast<float>(a.beta2);
  f.c2 = static_cast<float>(1.0 - a.beta2);
  f.correction = static_cast<float>(1.0 / balance_root(1.0 - power(a.beta2, time)));
  f.eps = static_cast<float>(a.eps);
  f.step = static_cast<float>(a.rate / (1.0 - power(a.beta1, time)));
  return f;
}

/// Moves the bias of expert i; `total` is the sum of the counts.
INGOT_INLINE void balance_expert(const BalanceArgs& a, const AdamWFactors& factors, int64_t i, double total) {
  const double count = a.counts[i], experts = static_cast<double>(a.experts);
  if (a.by_sign) {
    const double excess = count * experts - total;  // sign(n_i - mean), in whole numbers
    if (excess != 0) a.bias[i] += static_cast<float>(excess > 0 ? -a.rate : a.rate);
    return;
  }
  const float error = static_cast<float>(count / total - 1.0 / experts);
  a.bias[i] = adamw_element<false>(factors, error, a.bias[i], a.exp_avg[i], a.exp_avg_sq[i], nullptr);
}

}  // namespace ingot::INGOT_ISA
