// See model.h.
#include "models/model.h"

#include <algorithm>

namespace ingot {
namespace {

int64_t classes_of(const ModelConfig& m) { return m.moe.experts + (m.moe.skip_class ? 1 : 0); }

}  // namespace

Model::Model(const ModelConfig& config, const Precision& precision, const Placement& placement, Backing backing)
    : decoder_(config), weights_(decoder_.table(), placement, precision, backing),
      biases_(static_cast<int64_t>(decoder_.moe_layers().size()) * classes_of(config) * 4) {
  if (config.moe.skip_class)
    for (const int64_t layer : decoder_.moe_layers()) router_bias(layer).as<float>()[config.moe.experts] = -1.0f;
}

Tensor Model::router_bias(int64_t layer) const {
  const auto& layers = decoder_.moe_layers();
  const auto it = std::find(layers.begin(), layers.end(), layer);
  INGOT_CHECK(it != layers.end(), "layer {} has no router", layer);
  const int64_t classes = classes_of(config());
  return Tensor::of(static_cast<float*>(biases_.data()) + (it - layers.begin()) * classes, {classes});
}

std::string Model::router_bias_name(int64_t layer) { return fmt::format("layers.{}.moe.router.balancing_bias", layer); }

void Model::equip(Context& c) const {
  if (groups_) groups_(c);
  if (config().moe.balance == BalanceRule::none) return;
  for (const int64_t layer : decoder_.moe_layers())
    c.routers[layer].bias_E = router_bias(layer).slice(0, config().moe.experts);
}

}  // namespace ingot
