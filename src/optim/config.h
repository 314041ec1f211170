// [optimizer] of a recipe: docs/optimizers.md explains what the keys do.
#pragma once
#include <string>
#include <vector>

#include "base/config.h"
#include "optim/adamw.h"
#include "optim/groups.h"
#include "optim/muon.h"
#include "optim/qk_clip.h"

namespace ingot {

struct OptimizerConfig {
  GroupConfig groups;
  double weight_decay = 0.1;  ///< of groups with decay; decoupled, times the tensor's learning rate
  AdamWConfig adamw;
  AdEMAMixConfig ademamix;
  MuonConfig muon;
  ValueStorage master = ValueStorage::f32;         ///< of products' operands; f32 or bf16_stochastic
  ValueStorage gradient = ValueStorage::f32;       ///< f32 or bf16
  ValueStorage first_moment = ValueStorage::f32;   ///< exp_avg, exp_avg_slow, momentum
  ValueStorage second_moment = ValueStorage::f32;  ///< exp_avg_sq
  double clip = 1.0;
  QkClipConfig qk_clip;
  std::vector<std::string> freeze;

  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed("matrices", groups.matrices,
            "optimizer of weight matrices: adamw, ademamix, muon, or one that a program has registered");
    v.fixed("others", groups.others, "optimizer of all else: embeddings, head, norms, biases; not muon");
    v("weight_decay", weight_decay, "decoupled weight decay", up_to(1e6));
    v("adamw", adamw, "AdamW; AdEMAMix takes these too");
    v("ademamix", ademamix, "AdEMAMix's slow average");
    v("muon", muon, "Muon");
    v("master", master,
      "storage of matrices: f32, or bf16_stochastic (2 bytes a weight; bf16 runs without sharded weights)");
    v("gradient", gradient, "storage of gradients: f32, or bf16 (rounded once a micro-batch; sums are fp32)");
    v("first_moment", first_moment, "storage of momenta and first moments; updates are always fp32");
    v("second_moment", second_moment, "storage of AdamW's second moment");
    v("clip", clip, "largest global gradient norm; 0: no clipping", up_to(1e30));
    v("qk_clip", qk_clip.threshold,
      "largest attention logit a head may have before its q and k shrink (MuonClip); 0: off", up_to(1e6));
    v("qk_clip_alpha", qk_clip.alpha, "share of that shrinking that q takes, from 0 to 1", up_to(1));
    v("no_decay", groups.no_decay, "name patterns without weight decay");
    v.fixed("not_muon", groups.not_muon, "name patterns of matrices that count as all else");
    v("rules", groups.rules, "changes for single parameters, later over earlier");
    v.fixed("freeze", freeze,
            "name patterns of parameters that stay as they are, e.g. \"embed.*\", \"layers.0.*\"");
  }
  void validate(ConfigErrors& errors) const;
};

}  // namespace ingot
