// Low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685): beside a frozen matrix W a trained pair A, B,
// and y = x W^T + alpha / rank (x A^T) B^T. A starts uniform in +-1/sqrt(in) (as PEFT), B at zero: at step 0
// nothing changes.
//
// A packed matrix (q|k|v, gate|up, latent attention's down-projections) has a pair per block of rows, as if
// the blocks were matrices of their own: A's are stacked, [blocks rank, in], and rows of B, [out, rank],
// belong to their block's A. PEFT has the same for q_proj, k_proj, v_proj apart: both directions are exact.
#pragma once
#include <string>
#include <vector>

#include "base/config.h"
#include "nn/parameter.h"

namespace ingot {

struct LoraConfig {
  int64_t rank = 0;
  double alpha = 0;
  std::vector<std::string> targets;
  template <class Visitor>
  void visit(Visitor& v) {
    v("rank", rank, "of the adapters; 0: none", up_to(0x1p16));
    v("alpha", alpha, "adapters count alpha / rank; 0: as rank", up_to(1e6));
    v("targets", targets,
      "name patterns of matrices with adapters, e.g. \"*.attention.*\"; empty: all that can have one");
  }
  double scale() const { return alpha > 0 ? alpha / static_cast<double>(rank) : 1.0; }
};

void validate_lora(const LoraConfig& lora, ConfigErrors& errors);

/// Adds the pairs, "layers.3.mlp.down.lora_a" and "...lora_b", and freezes all other parameters. Error for a
/// pattern that matches no matrix which can have an adapter: those of attention, dense MLPs, shared experts
/// and latent projections; not embeddings, the head, routers, experts, the kv_up of latent attention (its
/// cache reads it), and the projections of multi-token prediction.
void add_adapters(const LoraConfig& lora, ParameterTable& table);

/// Whether a parameter of this name is half of an adapter.
bool is_adapter(const std::string& name);

}  // namespace ingot
