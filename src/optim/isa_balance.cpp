// The balance of a router's biases; see kernels.h.
#include "optim/balance_expert.h"
#include "optim/kernels.h"

namespace ingot::INGOT_ISA {

void balance_experts(const BalanceArgs& a) {
  double total = 0;
  for (int64_t i = 0; i < a.experts; ++i) total += a.counts[i];
  if (total == 0) return;
  const AdamWFactors factors = a.by_sign ? AdamWFactors{} : balance_factors(a, ++*a.step);
  for (int64_t i = 0; i < a.experts; ++i) balance_expert(a, factors, i, total);
}

}  // namespace ingot::INGOT_ISA
