// Upcycling: a dense model's weights become a mixture of experts that computes the same function at step 0
// ([Megatron-MoE] §7.6).
//
// With granularity G and expansion X there are E = G X experts of width hidden / G. Expert j holds shard j
// mod G of the dense MLP: rows of gate and up, columns of down. The first E / G rows of a fresh router are
// repeated G times each, so the G experts of a group j / G always tie, and a token's top-k, a multiple of G
// with ties to the lowest index, is a union of complete groups. Weights are softmax over the chosen, which
// gives each shard of a group w / G; so down is multiplied by G, and by that alone (spreading the factor over
// gate and up is exact only where the nonlinearity is homogeneous).
#pragma once
#include "nn/config.h"
#include "nn/weights.h"

namespace ingot {

struct UpcycleOptions {
  int64_t granularity = 1;  ///< G: experts that each MLP is divided into
  int64_t expansion = 8;    ///< X: copies of each shard
  int64_t top_k = 2;        ///< experts per token, a multiple of G, at least 2
};

/// The mixture's configuration; Error for a model or options that cannot be upcycled exactly.
ModelConfig upcycled_config(const ModelConfig& dense, const UpcycleOptions& options);

/// Fills `experts`, the weights of a decoder of upcycled_config(), from the dense model's. The router starts
/// from `seed`. Neither set is sharded on the tensor axis; `experts` may hold one expert rank's share.
void upcycle(const WeightSet& dense, const UpcycleOptions& options, uint64_t seed, WeightSet& experts);

}  // namespace ingot
