// A model in memory, as training, evaluation and generation share it: the decoder, its weights, and the
// routers' buffers, which are no trained parameters: selection biases, which a controller updates, and with
// moe.aux_scope = last_step the load of the experts in the step before.
#pragma once
#include <functional>

#include "models/decoder.h"

namespace ingot {

class Model {
 public:
  /// Allocates weights (zero until initialised or loaded), which may move to the device. Throws Error for an
  /// invalid config.
  Model(const ModelConfig& config, const Precision& precision, const Placement& placement = {},
        Backing backing = Backing::memory, DeviceKind device = DeviceKind::cpu)
      : Model(Decoder(config), precision, placement, backing, device) {}
  /// Of a decoder that was needed before.
  Model(Decoder decoder, const Precision& precision, const Placement& placement, Backing backing,
        DeviceKind device);

  const Decoder& decoder() const { return decoder_; }
  const ModelConfig& config() const { return decoder_.config(); }
  void set_rope_theta(double theta) {
    decoder_.set_rope_theta(theta);
    weights_.changed();
  }
  void set_window(int64_t tokens) {
    decoder_.set_window(tokens);
    weights_.changed();
  }
  void freeze(const std::vector<std::string>& patterns) { decoder_.freeze(patterns); }
  WeightSet& weights() { return weights_; }
  /// WeightSet::use_device(), and the same for the routers' buffers.
  void use_device(bool on) {
    weights_.use_device(on);
    in_use_on_device_ = on && biases_.device() != DeviceKind::cpu;
  }
  const WeightSet& weights() const { return weights_; }

  /// Selection bias of a MoE layer, f32 [E + skip classes]; the skip class's is pinned at -1.
  Tensor router_bias(int64_t layer) const;
  /// Sets it, whatever a file said, as transformers does.
  void pin_skip_class();
  /// "layers.3.moe.router.balancing_bias": its name in checkpoints.
  static std::string router_bias_name(int64_t layer);
  /// What share of the last step's choices each expert of a MoE layer got, f32 [E]; even before the first
  /// step. Only with moe.aux_scope = last_step.
  Tensor router_load(int64_t layer) const;
  bool keeps_loads() const { return config().moe.aux_scope == AuxScope::last_step; }
  /// Gives a forward pass the routers' buffers, where the config uses any, and what join() set.
  void equip(Context& c) const;
  /// Many ranks: how a forward pass gets their groups (parallel/rank_groups.h).
  void join(std::function<void(Context&)> groups) { groups_ = std::move(groups); }
  int64_t bytes() const { return weights_.bytes() + biases_.bytes() + loads_.bytes(); }

 private:
  /// A layer's row of a buffer with one row per router.
  Tensor router_row(const Buffer& buffer, int64_t layer, int64_t width) const;
  Decoder decoder_;
  WeightSet weights_;
  Buffer biases_, loads_;
  bool in_use_on_device_ = false;
  std::function<void(Context&)> groups_;
};

}  // namespace ingot
