// TrainEngine's steps with weights, gradients and the optimizer's state on a device. See engine.h.
#include "base/clock.h"
#include "device/cuda/cuda_device.h"
#include "train/engine.h"

namespace ingot {

AfterUpdate TrainEngine::after_update(std::span<const ParamView> there) const {
  AfterUpdate after{.clip = recipe_.optimizer.qk_clip,
                    .moe_layers = model_->decoder().moe_layers(),
                    .experts = recipe_.model.moe.experts,
                    .balance = balance_.get()};
  if (clips_attention()) after.clip_layers = qk_clip_layers(recipe_.model, there);
  for (const int64_t layer : after.moe_layers) {
    if (balances_routers()) after.biases.push_back(model_->router_bias(layer).data);
    if (model_->keeps_loads()) after.loads.push_back(model_->router_load(layer).data);
  }
  return after;
}

void TrainEngine::build_device_update() {
  const std::vector<ParamView> there = optimizer_views(model_->weights(), *gradients_);
  device_update_ = std::make_unique<DeviceUpdate>(weights_device_, *optimizer_, there, after_update(there));
}

StepOutcome TrainEngine::step_on_device(const data::Batch& batch, const StepCall& call) {
  const auto enters = [&](StepPart part) {
    if (call.observer != nullptr) call.observer->enters(part);
  };
  std::optional<OnDevice> weights(*this);
  if (!device_update_) build_device_update();
  move_to_device();  // what was read on the host: passes that are replayed ask for no tensors
  if (weights_device_ == DeviceKind::cuda) {
    const LaunchOn on(&cuda_device());
    model_->weights().round_on_gpu();
  }
  const bool here = device_update_->takes_all(), alone = here && ranks_->groups().world().size() == 1;
  const double begin = monotonic_seconds();
  StepOptions options = call.options;
  if (call.observer != nullptr && call.observer->wants_ops()) options.observer = call.observer;
  if (alone) options.sums = &device_update_->sums();
  enters(StepPart::passes);
  device_update_->begin_step();
  const std::unique_ptr<StartedStep> started = runner_->start(batch, options);
  enters(StepPart::optimizer);
  gradients_->finish_step();
  const double middle = monotonic_seconds();
  StepOutcome o;
  if (alone)
    end_alone(batch, call, *started, weights, o);
  else if (here)
    end_with_ranks(call, *started, weights, o);
  else
    end_back_on_host(call, *started, weights, o);
  o.passes_seconds = middle - begin;
  o.update_seconds = monotonic_seconds() - middle;
  return o;
}

void TrainEngine::end_alone(const data::Batch& batch, const StepCall& call, StartedStep& started,
                            std::optional<OnDevice>& weights, StepOutcome& o) {
  const bool any = std::any_of(batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t >= 0; });
  const double scale = any ? 1.0 / started.stats.divisor : 0.0;
  if (call.observer != nullptr) call.observer->enters(StepPart::update);
  DeviceUpdate::Result result;
  if (any) {  // else the judge refuses the batch
    device_update_->launch({.lr = call.lr, .grad_scale = scale}, moves_biases());
    started.reads.read({device_update_->block()},
                       [&](std::span<const Tensor> block) { result = device_update_->take(block[0]); });
  }
  o.stats = runner_->finish(started);
  model_->weights().changed();
  weights.reset();  // a judge may read what it finds
  o.norm = norm_over_ranks(result.sum_squares, scale);
  if (call.judge) call.judge(o.stats, o.norm);
  o.clipped_heads = result.clipped_heads;
}

/// As on the cpu: the host waits for the norm, which the ranks combine, and again for the update.
void TrainEngine::end_with_ranks(const StepCall& call, StartedStep& started, std::optional<OnDevice>& weights,
                                 StepOutcome& o) {
  std::vector<double> sum_squares;
  device_update_->launch_norm();
  started.reads.read({device_update_->block()}, [&](std::span<const Tensor> block) {
    sum_squares = device_update_->sum_squares(block[0]);
  });
  o.stats = runner_->finish(started);
  weights.reset();
  const double scale = o.stats.valid > 0 ? 1.0 / o.stats.divisor : 0.0;
  o.norm = norm_over_ranks(sum_squares, scale);
  if (call.judge) call.judge(o.stats, o.norm);
  if (call.observer != nullptr) call.observer->enters(StepPart::update);
  weights.emplace(*this);
  move_to_device();  // what the judge may have read
  device_update_->launch_update({.lr = call.lr,
                                 .grad_scale = scale,
                                 .clip_factor = clip_factor(o.norm.norm, optimizer_->config().clip)},
                                moves_biases(), o.stats.expert_counts, o.stats.attention_logits);
  StepReads reads(device_of(weights_device_));
  reads.read({device_update_->block()}, [&](std::span<const Tensor> block) {
    o.clipped_heads = device_update_->take(block[0]).clipped_heads;
  });
  reads.finish();
  o.clipped_heads = sum_over_model(o.clipped_heads);
  model_->weights().changed();
}

/// Where a GPU has no kernels for a part of it: all values move to the host.
void TrainEngine::end_back_on_host(const StepCall& call, StartedStep& started,
                                   std::optional<OnDevice>& weights, StepOutcome& o) {
  o.stats = runner_->finish(started);
  weights.reset();
  bring_back();
  end_on_host(call, o);
}

void TrainEngine::move_to_device() const {
  if (model_->weights().size() > 0) model_->weights().master(0), gradients_->gradient(0);
  const std::vector<int64_t>& layers = model_->decoder().moe_layers();
  if (balances_routers()) model_->router_bias(layers.front());
  if (!layers.empty() && model_->keeps_loads()) model_->router_load(layers.front());
}

}  // namespace ingot
