// See run_forecast.h.
#include "plan/run_forecast.h"

#include <algorithm>

#include "base/progress.h"
#include "plan/op_cost.h"
#include "plan/run_time.h"

namespace ingot {
namespace {

/// "products 1.2 s", or "sampling 2 s" where that is more.
std::string largest_purpose(const StepTime& step, double sampling) {
  const RankTime& r = step.ranks[static_cast<size_t>(step.critical)];
  const auto most = std::max_element(r.busy.begin(), r.busy.end());
  if (sampling > *most) return fmt::format("sampling {}", format_seconds(sampling));
  return fmt::format("{} {}", name_of(static_cast<TimeOf>(most - r.busy.begin())), format_seconds(*most));
}

/// Of the rate of products, in calls of an engine that decodes many replies at once: their products have few
/// rows, attention reads keys and values for one row each, and a token is drawn between two calls. Measured
/// of one phase on one machine (recipes/reasoner.toml, 256 replies together).
constexpr double kSamplingShare = 0.3;

StepForecast forecast(Recipe recipe, size_t phase, const Preflight& measured) {
  const bool bf16 = recipe.run.precision == PrecisionChoice::bf16;
  PhaseConfig only = recipe.phases[phase];
  only.continues = false;
  recipe.phases = {std::move(only)};
  recipe.memory.recompute = measured.recompute, recipe.memory.offload = measured.offload;
  recipe.memory.limit.clear();
  try {
    const Cluster machine = this_machine(measured);
    const std::string type = bf16 ? "bf16" : "f32";
    const RunTime time = time_run(plan_stages(recipe, 1), machine, {.type = type});
    const double rate = kSamplingShare * machine.device.product_share.of(type) *
                        OpCostModel(machine, type).peak(),
                 sampling = measured.phases.at(phase).source.flops / rate;
    return {time.step.seconds + sampling, largest_purpose(time.step, sampling), ""};
  } catch (const Error& e) {
    return {.missing = fmt::format("its step could not be planned: {}", e.what())};
  }
}

}  // namespace

Cluster this_machine(const Preflight& measured) {
  Cluster c;
  c.name = "this machine";
  c.devices = 1;
  c.device.rates.bf16 = 1e-3 * measured.peak_gflops;
  c.device.rates.f32 = measured.f32_gflops > 0 ? 1e-3 * measured.f32_gflops : c.device.rates.bf16;
  c.device.bandwidth = measured.read_gbs;
  c.device.product_share.f32 = c.device.product_share.bf16 = 0.85;
  c.device.attention_share = 0.5;
  c.device.launch_us = 0.5;
  c.device.quality = Quality::measured;
  return c;
}

std::vector<StepForecast> forecast_steps(const Recipe& recipe, int ranks, const Preflight& measured) {
  std::vector<StepForecast> steps(recipe.phases.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    if (ranks > 1)
      steps[i].missing = "the links between ranks are not measured before a run";
    else if (measured.peak_gflops > 0)
      steps[i] = forecast(recipe, i, measured);
  }
  return steps;
}

}  // namespace ingot
