// See update_cost.h.
#include "optim/update_cost.h"

namespace ingot {

UpdateCost update_cost(const Optimizer& optimizer) {
  const NewtonSchulzConfig& products = optimizer.config().muon.newton_schulz;
  UpdateCost cost;
  cost.bf16 = products.precision == NewtonSchulzPrecision::bf16;
  const std::span<const ParamView> params = optimizer.params();
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamView& p = params[i];
    cost.elements += p.numel();
    const double flops = optimizer.update_flops(i);
    if (flops == 0) continue;
    // A step of m rows and n > m columns takes about 3 m^2 n FLOPs.
    const auto whole =
        static_cast<double>(p.shape.numel()) * (p.sharding.group ? p.sharding.group->size() : 1);
    cost.flops += flops, cost.depth += flops * flops / (3 * static_cast<double>(products.steps) * whole);
  }
  if (cost.flops > 0) cost.depth /= cost.flops;
  cost.bytes = 16 * static_cast<double>(cost.elements) + 2 * static_cast<double>(optimizer.state_bytes());
  return cost;
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
