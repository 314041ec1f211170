// See device_update.h.
#include "optim/device_update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "optim/clip.h"

namespace ingot {
namespace {

void add(KernelAddresses& addresses, StoredValues& values, int64_t count, bool is_written) {
  addresses.add(values.data, count * size_of(dtype_of(values.storage)), is_written);
}

/// What the kernel of the norm, or of the update, takes.
struct UpdateCall {
  Optimizer::Place place;
  void* block;
  KernelAddresses addresses;
};

double* words_of(const UpdateCall& call) {
  return static_cast<double*>(call.block);
}

}  // namespace

DeviceUpdate::DeviceUpdate(DeviceKind device, Optimizer& optimizer, std::span<const ParamView> params)
    : device_(device_of(device)),
      optimizer_(optimizer),
      place_(optimizer.place_on_device(params)),
      words_(3 * params.size() + 5),
      block_(static_cast<int64_t>(words_ * sizeof(double)), Backing::memory, device, "numbers of a step") {}

void DeviceUpdate::begin_step() {
  device_.launch(
      {{{word(0), static_cast<int64_t>(words_ * sizeof(double)), true}},
       [bytes = words_ * sizeof(double)](std::span<void* const> at) { std::memset(at[0], 0, bytes); }});
}

void DeviceUpdate::launch(const StepArgs& args) {
  constexpr int64_t kEager = 2;  // the first ones allocate
  optimizer_.move_state_to_device();
  const double scalars[] = {args.lr, args.grad_scale, static_cast<double>(optimizer_.count_step())};
  device_.upload(word(scalar_words()), scalars, sizeof(scalars));
  if (!device_.captures_graphs() || launched_ < kEager) {
    ++launched_;
    return launch_kernels();
  }
  if (graph_.work == nullptr || graph_of_config_ != optimizer_.config_version()) {
    graph_of_config_ = optimizer_.config_version();
    device_.begin_capture();
    launch_kernels();
    graph_ = device_.end_capture();
  }
  device_.replay(graph_);
}

/// Nothing of a step is in what these capture: it is in the block.
void DeviceUpdate::launch_kernels() const {
  const auto bytes = static_cast<int64_t>(words_ * sizeof(double));
  const auto norm = std::make_shared<UpdateCall>(UpdateCall{place_, word(0), {}});
  for (ParamView& p : norm->place.params) add(norm->addresses, p.grad, p.numel(), false);
  norm->addresses.add(norm->block, bytes, true);
  device_.launch({norm->addresses.ranges(), [norm](std::span<void* const> at) {
                    norm->addresses.bind(at);
                    const GradNorm n = gradient_norm(norm->place.params, 1);
                    std::copy(n.sum_squares.begin(), n.sum_squares.end(), words_of(*norm));
                  }});

  const auto update = std::make_shared<UpdateCall>(UpdateCall{place_, word(0), {}});
  for (size_t i = 0; i < update->place.params.size(); ++i) {
    ParamView& p = update->place.params[i];
    add(update->addresses, p.master, p.numel(), true);
    add(update->addresses, p.grad, p.numel(), false);
    Optimizer::State& state = update->place.state[i];
    for (size_t s = 0; s < state.moments.size(); ++s)
      add(update->addresses, state.moments[s], state.slots[s].shape.numel(), true);
  }
  update->addresses.add(update->block, bytes, true);
  device_.launch(
      {update->addresses.ranges(), [update, optimizer = &optimizer_, scalars = scalar_words(),
                                    made = update_word(), loss = words_ - 1](std::span<void* const> at) {
         update->addresses.bind(at);
         double* const words = words_of(*update);
         const size_t count = update->place.params.size();
         StepArgs args{.lr = words[scalars], .grad_scale = words[scalars + 1]};
         GradNorm n;
         n.sum_squares.assign(words, words + count);
         n.combine(args.grad_scale);
         if (!n.finite() || !std::isfinite(words[loss])) return;
         args.clip_factor = clip_factor(n.norm, optimizer->config().clip);
         const auto step = static_cast<int64_t>(words[scalars + 2]);
         const std::vector<UpdateStat> stats = optimizer->step_at(update->place, args, step);
         for (size_t i = 0; i < count; ++i) {
           words[count + 2 * i] = stats[i].update_rms;
           words[count + 2 * i + 1] = stats[i].weight_rms;
         }
         words[made] = 1;
       }});
}

Tensor DeviceUpdate::block() const {
  return {word(0), {static_cast<int64_t>(words_)}, DType::f64, device_.kind()};
}

std::vector<double> DeviceUpdate::take(const Tensor& host_block) {
  const auto* words = host_block.as<double>();
  const size_t count = place_.params.size();
  std::vector<UpdateStat> stats(count);
  for (size_t i = 0; i < count; ++i) stats[i] = {words[count + 2 * i], words[count + 2 * i + 1]};
  if (words[update_word()] != 0)
    optimizer_.take_stats(std::move(stats));
  else
    optimizer_.take_step_back();
  return {words, words + count};
}

int64_t DeviceUpdate::clip_heads(const QkClipConfig& config, const QkClipLayer& layer,
                                 std::span<const double> max_logit) {
  struct ClipCall {
    QkClipLayer layer;
    std::vector<double> max_logit;
    KernelAddresses addresses;
  };
  const int64_t clipped = qk_clip_factors(config, layer.kv_heads, max_logit).clipped;
  if (clipped == 0) return 0;
  const auto call = std::make_shared<ClipCall>(
      ClipCall{layer, std::vector<double>(max_logit.begin(), max_logit.end()), {}});
  for (auto* side :
       {&call->layer.queries, &call->layer.keys, &call->layer.temperatures, &call->layer.shared_key_queries})
    for (QkRows& rows : *side) add(call->addresses, rows.param.master, rows.param.numel(), true);
  device_.launch({call->addresses.ranges(), [call, config](std::span<void* const> at) {
                    call->addresses.bind(at);
                    qk_clip(config, call->layer, call->max_logit);
                  }});
  return clipped;
}

}  // namespace ingot
