// Losses on preferences, as pure functions in double of what the sequences of a pair say: DPO (Rafailov et
// al. 2023, eq. 7), IPO (Azar et al. 2023, eq. 17), APO-zero and APO-down (D'Oosterlinck et al. 2024, eqs. 6,
// 7), KTO (Ethayarajh et al. 2024, eq. 8), ORPO (Hong et al. 2024, eqs. 4 to 7), SimPO (Meng et al. 2024, eq.
// 6).
//
// l(y): sum of the log-probabilities of a sequence's tokens that count, |y| their number, f(y) the same sum
// under the reference; c = l - f of the chosen sequence, r of the rejected one; s = sigmoid.
//   dpo       -log s(beta (c - r))
//   ipo       (c/|c| - r/|r| - 1/(2 beta))^2; with length = "sum" as in the paper: (c - r - 1/(2 beta))^2
//   apo_zero  1 - s(beta c) + s(beta r)
//   apo_down  s(beta c) + 1 - s(beta (c - r))
//   kto       w_d (1 - s(beta (c - z))) + w_u (1 - s(beta (z - r))); either sequence may be absent. z: what
//             the policy's mean c of mismatched prompts and answers was, at least 0; has no gradient
//   orpo      -m_c - lambda log s(o(m_c) - o(m_r)), m = l/|y|, o(x) = x - log(1 - e^x); no reference
//   simpo     -log s(beta (m_c - m_r) - gamma); no reference
#pragma once
#include "train/post_recipe.h"

namespace ingot {

/// One sequence of a pair. tokens 0: absent (KTO).
struct ScoredSequence {
  double logprob = 0;    ///< l
  double reference = 0;  ///< f; 0 where the loss has none
  double tokens = 0;     ///< |y|
  double ratio() const { return logprob - reference; }
  double mean() const { return tokens > 0 ? logprob / tokens : 0; }
};

struct PreferenceValue {
  double loss = 0;
  double d_chosen = 0, d_rejected = 0;  ///< by l of the sequence, so by each of its tokens' log-probabilities
  double reward_chosen = 0,
         reward_rejected = 0;  ///< implicit: beta c and beta r, or beta m without reference
};

/// `kl`: z of KTO. Finite for all finite inputs, means above -1e-12 of ORPO included.
PreferenceValue preference_loss(const PreferenceConfig& config, const ScoredSequence& chosen,
                                const ScoredSequence& rejected, double kl = 0);

/// Whether the loss compares with a reference model.
bool needs_reference(PreferenceLoss loss);

}  // namespace ingot
