// See model.h.
#include "models/model.h"

#include <algorithm>
#include <utility>

namespace ingot {

Model::Model(Decoder decoder, const Precision& precision, const Placement& placement, Backing backing,
             DeviceKind device)
    : decoder_(std::move(decoder)),
      weights_(decoder_.table(), placement, precision, backing, device),
      biases_(static_cast<int64_t>(decoder_.moe_layers().size()) * config().moe.classes() * 4,
              Backing::memory, backing == Backing::memory ? device : DeviceKind::cpu, "biases of routers"),
      loads_(
          keeps_loads() ? static_cast<int64_t>(decoder_.moe_layers().size()) * config().moe.experts * 4 : 0,
          Backing::memory, backing == Backing::memory ? device : DeviceKind::cpu, "loads of experts") {
  pin_skip_class();
  if (keeps_loads())
    std::fill_n(static_cast<float*>(loads_.data()), loads_.bytes() / 4,
                1.0f / static_cast<float>(config().moe.experts));
}

Tensor Model::router_row(const Buffer& buffer, int64_t layer, int64_t width) const {
  const auto& layers = decoder_.moe_layers();
  const auto it = std::find(layers.begin(), layers.end(), layer);
  INGOT_CHECK(it != layers.end(), "layer {} has no router", layer);
  void* const rows = in_use_on_device_ ? buffer.on_device() : buffer.data();
  return Tensor(static_cast<float*>(rows) + (it - layers.begin()) * width, {width}, DType::f32,
                in_use_on_device_ ? buffer.device() : DeviceKind::cpu);
}

Tensor Model::router_bias(int64_t layer) const {
  return router_row(biases_, layer, config().moe.classes());
}

Tensor Model::router_load(int64_t layer) const {
  INGOT_CHECK(keeps_loads());
  return router_row(loads_, layer, config().moe.experts);
}

void Model::pin_skip_class() {
  if (!config().moe.skip_class) return;
  for (const int64_t layer : decoder_.moe_layers())
    router_bias(layer).as<float>()[config().moe.experts] = -1.0f;
}

std::string Model::router_bias_name(int64_t layer) {
  return layer_prefix(layer) + "moe.router.balancing_bias";
}

void Model::equip(Context& c) const {
  if (groups_) groups_(c);
  for (const int64_t layer : decoder_.moe_layers()) {
    if (config().moe.balance != BalanceRule::none) c.routers[layer].bias = router_bias(layer);
    if (keeps_loads()) c.routers[layer].load_E = router_load(layer);
  }
}

}  // namespace ingot
