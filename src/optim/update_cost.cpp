// See update_cost.h.
#include "optim/update_cost.h"

namespace ingot {

UpdateCost update_cost(const Optimizer& optimizer) {
  int64_t elements = 0;
  for (const ParamView& p : optimizer.params()) elements += p.numel();
  return {elements, optimizer.update_flops(),
          16 * static_cast<double>(elements) + 2 * static_cast<double>(optimizer.state_bytes()),
          optimizer.config().muon.newton_schulz.precision == NewtonSchulzPrecision::bf16};
}

std::vector<UpdateGather> update_gathers(const Optimizer& optimizer) {
  std::vector<UpdateGather> gathers;
  const std::span<const ParamView> params = optimizer.params();
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamView& p = params[i];
    if (optimizer.groups()[i].optimizer != "muon" || p.numel() == 0) continue;
    const double bytes = sizeof(float) * static_cast<double>(p.shape.numel());
    if (p.shards != nullptr && p.numel() < p.shape.numel()) gathers.push_back({p.shards->group, bytes});
    if (p.sharding.group != nullptr) gathers.push_back({p.sharding.group, p.sharding.group->size() * bytes});
  }
  return gathers;
}

}  // namespace ingot
