// See post_recipe.h.
#include "train/post_recipe.h"

namespace ingot {

OptimizerConfig PhaseOptimizerConfig::over(OptimizerConfig base) const {
  base.clip = clip.value_or(base.clip);
  base.weight_decay = weight_decay.value_or(base.weight_decay);
  base.adamw.beta1 = beta1.value_or(base.adamw.beta1);
  base.adamw.beta2 = beta2.value_or(base.adamw.beta2);
  base.muon.lr_multiplier = muon_lr_multiplier.value_or(base.muon.lr_multiplier);
  if (momentum) {
    base.muon.momentum = *momentum;
    base.muon.momentum_warmup = base.muon.momentum_cooldown = 0;
  }
  return base;
}

}  // namespace ingot
