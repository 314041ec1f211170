// The recipe's section [optimizer]: docs/optimizers.md explains what the fields do.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "optim/optimizer.h"
#include "optim/qk_clip.h"

namespace ingot {

/// [[optimizer.rules]]: changes of single parameters, later rules over earlier ones.
struct OptimizerRule {
  std::string pattern;
  std::optional<OptimizerKind> optimizer;
  std::optional<double> lr_multiplier;
  std::optional<double> decay_multiplier;
  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed("pattern", pattern, "parameters whose names match (* and ?)");
    v.fixed("optimizer", optimizer, "none: as it would be");
    v("lr_multiplier", lr_multiplier, "factor on the learning rate");
    v("decay_multiplier", decay_multiplier, "factor on weight_decay; 0: no decay");
  }
};

struct OptimizerRecipe {
  OptimizerKind matrices = OptimizerKind::muon;
  OptimizerKind others = OptimizerKind::adamw;
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double ademamix_beta3 = 0.9999, ademamix_alpha = 5;
  int64_t ademamix_warmup = 0;
  double muon_momentum = 0.95, muon_momentum_start = 0.85;
  int64_t muon_momentum_warmup = 0;
  double muon_momentum_end = 0.85;
  int64_t muon_momentum_cooldown = 0;
  bool muon_nesterov = true;
  MomentumForm muon_form = MomentumForm::sum;
  MuonScale muon_scale = MuonScale::match_rms;
  double muon_lr_multiplier = 1.0;
  MomentStorage first_moment = MomentStorage::f32, second_moment = MomentStorage::f32;
  double clip = 1.0;
  double qk_clip = 0, qk_clip_alpha = 0.5;
  std::vector<std::string> no_decay = GroupConfig::default_no_decay();
  std::vector<std::string> not_muon = GroupConfig::default_not_muon();
  std::vector<OptimizerRule> rules;
  std::vector<std::string> freeze;
  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed("matrices", matrices, "optimizer of weight matrices");
    v.fixed("others", others, "optimizer of all else: embeddings, head, norms, biases; not muon");
    v("weight_decay", weight_decay, "decoupled weight decay");
    v("beta1", beta1, "AdamW and AdEMAMix");
    v("beta2", beta2, "AdamW and AdEMAMix");
    v("eps", eps, "AdamW and AdEMAMix");
    v("ademamix_beta3", ademamix_beta3, "of AdEMAMix's slow average");
    v("ademamix_alpha", ademamix_alpha, "weight of AdEMAMix's slow average");
    v("ademamix_warmup", ademamix_warmup, "steps over which beta3 and alpha rise; 0: the whole run");
    v("muon_momentum", muon_momentum, "Muon's momentum; 0: none");
    v("muon_momentum_start", muon_momentum_start, "momentum at the first step, while warming up");
    v("muon_momentum_warmup", muon_momentum_warmup, "steps of the momentum's warm-up; 0: none");
    v("muon_momentum_end", muon_momentum_end, "momentum after the last step, while cooling down");
    v("muon_momentum_cooldown", muon_momentum_cooldown,
      "last steps of the run, in which the momentum cools down; 0: none");
    v("muon_nesterov", muon_nesterov, "Nesterov form");
    v("muon_form", muon_form, "sum or lerp");
    v("muon_scale", muon_scale, "match_rms (0.2 sqrt(max(r, c))), spectral or none");
    v("muon_lr_multiplier", muon_lr_multiplier, "factor on the learning rate of Muon's matrices");
    v("first_moment", first_moment, "storage of momenta and first moments; updates are always fp32");
    v("second_moment", second_moment, "storage of AdamW's second moment");
    v("clip", clip, "largest global gradient norm; 0: no clipping");
    v("qk_clip", qk_clip,
      "largest attention logit a head may have before its q and k shrink (MuonClip); 0: off");
    v("qk_clip_alpha", qk_clip_alpha, "the queries' share of that shrinking, between 0 and 1");
    v("no_decay", no_decay, "name patterns without weight decay");
    v.fixed("not_muon", not_muon, "name patterns of matrices that count as all else");
    v("rules", rules, "changes for single parameters, later over earlier");
    v.fixed("freeze", freeze,
            "name patterns of parameters that stay as they are, e.g. \"embed.*\", \"layers.0.*\"");
  }
  /// For a run of `total_steps`, rounding by `seed`.
  OptimizerConfig resolved(int64_t total_steps, int64_t seed) const;
  QkClipConfig resolved_qk_clip() const { return {qk_clip, qk_clip_alpha}; }
};

}  // namespace ingot
