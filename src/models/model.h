// A model in memory: decoder, weights, and the routers' selection biases (buffers that a controller moves, not trained
// parameters). What training, evaluation and generation share.
#pragma once
#include <functional>

#include "models/decoder.h"

namespace ingot {

class Model {
 public:
  /// Allocates weights (zero until initialised or loaded). Throws Error for an invalid config.
  Model(const ModelConfig& config, const Precision& precision, const Placement& placement = {},
        Backing backing = Backing::memory);

  const Decoder& decoder() const { return decoder_; }
  const ModelConfig& config() const { return decoder_.config(); }
  void set_rope_theta(double theta) { decoder_.set_rope_theta(theta); }
  void set_window(int64_t tokens) { decoder_.set_window(tokens); }
  void freeze(const std::vector<std::string>& patterns) { decoder_.freeze(patterns); }
  WeightSet& weights() { return weights_; }
  const WeightSet& weights() const { return weights_; }

  /// Selection bias of a MoE layer, f32 [E + skip classes]; the skip class's is pinned at -1.
  Tensor router_bias(int64_t layer) const;
  /// "layers.3.moe.router.balancing_bias": its name in checkpoints.
  static std::string router_bias_name(int64_t layer);
  /// Gives a forward pass the router biases, where the config uses any, and what join() set.
  void equip(Context& c) const;
  /// Many ranks: how a forward pass gets their groups (parallel/rank_groups.h).
  void join(std::function<void(Context&)> groups) { groups_ = std::move(groups); }
  int64_t bytes() const { return weights_.bytes() + biases_.bytes(); }

 private:
  Decoder decoder_;
  WeightSet weights_;
  Buffer biases_;
  std::function<void(Context&)> groups_;
};

}  // namespace ingot
