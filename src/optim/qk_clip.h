// QK-clip (Kimi K2's MuonClip is Muon with it): after the optimizer's step, heads whose largest attention
// logit was above a threshold get smaller query and key weights, so that logits cannot run away.
//
//   eta_h = min(1, threshold / max_logit_h)                        per query head h
//   eta_g = min over the query heads of key head g of eta_h
//   W_k,g <- W_k,g * eta_g^(1 - alpha)       W_q,h <- W_q,h * eta_h / eta_g^(1 - alpha)
//
// So the logits of head h are multiplied by exactly eta_h: one query head per key head gives eta^alpha and
// eta^(1 - alpha). Biases of the projections are scaled with them; values are not. Where the model normalises
// queries and keys and scales keys by a temperature per key head (CCA), the temperature takes eta_g. In
// latent attention (MLA) the rotated key is shared by all heads: it stays, and the rotated rows of a query
// head take eta_h alone. Masters and compute copies both change; momenta do not. No state. Source:
// docs/optimizers.md; Kimi K2 report, §2.1 (MuonClip).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "nn/config.h"
#include "optim/param.h"

namespace ingot {

struct QkClipConfig {
  double threshold = 0;  ///< 0: off
  double alpha = 0.5;    ///< the queries' share
};

/// Rows of one parameter that belong to heads: head i has [first_row + i * stride, ... + rows_per_head).
struct QkRows {
  ParamView param;
  int64_t first_row = 0;
  int64_t rows_per_head = 0;
  int64_t stride = 0;  ///< 0: rows_per_head
};

/// What makes the logits of one attention layer.
struct QkClipLayer {
  int64_t heads = 0, kv_heads = 0;
  std::vector<QkRows> queries, keys;       ///< projection and, where there is one, its bias
  std::vector<QkRows> temperatures;        ///< one row per key head; queries and keys are empty then
  std::vector<QkRows> shared_key_queries;  ///< of query heads, against a key that all share
};

/// Factors on the rows of each query head and each key head.
struct QkFactors {
  std::vector<double> query, key;
  int64_t clipped = 0;  ///< query heads above the threshold
};

/// Weights of one parameter that belong to a head: `count` of them from `first` on, of the part that is here.
/// They are multiplied by the factors of a query head and of a key head, where there is one (else -1).
struct QkWeights {
  const ParamView* param;
  int64_t first, count;
  int64_t query, key;
};
/// Those of a layer that are not none.
std::vector<QkWeights> qk_weights(const QkClipLayer& layer);

/// Throws Error for a negative threshold or an alpha outside [0, 1].
void validate(const QkClipConfig& config);

/// The settings for a layer: where only temperatures are scaled, the key side takes all.
QkClipConfig qk_clip_of(const QkClipConfig& config, const QkClipLayer& layer);

/// `max_logit`: one value per query head. Powers are those of power.h, which devices have too.
QkFactors qk_clip_factors(const QkClipConfig& config, int64_t kv_heads, std::span<const double> max_logit);

/// Scales the weights of one layer; returns how many query heads were clipped.
int64_t qk_clip(const QkClipConfig& config, const QkClipLayer& layer, std::span<const double> max_logit);

/// The layers of a decoder, from its parameters. An Error where logits do not follow the projections: queries
/// and keys that are normalised with learned weights, or capped logits.
std::vector<QkClipLayer> qk_clip_layers(const ModelConfig& model, std::span<const ParamView> params);

}  // namespace ingot
