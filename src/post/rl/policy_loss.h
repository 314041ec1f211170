// The policy-gradient loss of one token, and its derivative by the token's log-probability. Pure functions in
// double. l: log-probability by the model that trains; m: the one recorded when the token was sampled;
// A: advantage; rho = exp(clamp(l - m, -20, 20)). sg: no gradient flows through it.
//
//   reinforce  -A sg(min(rho, cap)) l
//   clip       -min(rho A, clamp(rho, 1 - low, 1 + high) A); with dual > 0 and A < 0 at most -dual A
//              (Schulman et al. 2017; clip-higher: Yu et al. 2025; dual clip: Ye et al. 2020)
//   cispo      -A sg(min(rho, cispo)) l         (MiniMax-M1 2025)
//   dppo       as reinforce where the token is kept, else 0. Kept: e^l - e^m <= delta for A > 0, >= -delta
//              else: steps back towards the recorded policy are never blocked ([ZAYA1-8B] §IV-B)
//
// On-policy (l = m) all have loss value up to constants and the derivative -A.
//
// Beside it, where there is a reference with log-probability f: e^(f - l) - (f - l) - 1, an estimate of
// KL(policy | reference) that is never negative (Schulman 2020; [GRPO] eq. 4).
#pragma once
#include <cstdint>

#include "train/rl_recipe.h"

namespace ingot {

struct PolicyLoss {
  PolicyLossKind kind = PolicyLossKind::dppo;
  double clip_low = 0.2, clip_high = 0.2;
  double dual_clip = 0;  ///< 0: off
  double cispo_cap = 5;
  double delta = 0.1;     ///< of dppo
  double ratio_cap = 20;  ///< of reinforce and dppo
  double kl = 0;          ///< coefficient of the divergence from the reference
};

struct PolicyTerm {
  double loss = 0, d_logprob = 0;
  bool masked = false;  ///< clipped or blocked: the token's derivative is 0 though A is not
};
PolicyTerm policy_term(const PolicyLoss& rule, double logprob, double recorded, double advantage);

/// The divergence from a reference: value and derivative, f - l limited to [-20, 20].
PolicyTerm reference_term(double logprob, double reference);

}  // namespace ingot
