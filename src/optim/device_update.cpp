// See device_update.h.
#include "optim/device_update.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "optim/clip.h"
#include "optim/update_kernels.h"

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

struct ClipCall {
  std::vector<QkClipLayer> layers;
  void* block;
  KernelAddresses addresses;
};

std::vector<QkRows*> rows_of(QkClipLayer& layer) {
  std::vector<QkRows*> all;
  for (auto* side : {&layer.queries, &layer.keys, &layer.temperatures, &layer.shared_key_queries})
    for (QkRows& rows : *side) all.push_back(&rows);
  return all;
}

double* words_of(void* block) {
  return static_cast<double*>(block);
}

void balance_on_host(std::span<const BalanceTask> layers) {
  for (const BalanceTask& layer : layers) {
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < layer.experts; ++i) counts.push_back(static_cast<int64_t>(layer.counts[i]));
    if (layer.load != nullptr) load_fractions(counts, layer.load);
    if (layer.biases != nullptr) INGOT_ISA_CALL(balance_experts)(*layer.biases);
  }
}

}  // namespace

DeviceUpdate::DeviceUpdate(DeviceKind device, Optimizer& optimizer, std::span<const ParamView> params,
                           AfterUpdate after)
    : device_(device_of(device)),
      optimizer_(optimizer),
      after_(std::move(after)),
      place_(optimizer.place_on_device(params)) {
  const auto take = [this](size_t count) { return std::exchange(words_.all, words_.all + count); };
  words_.sum_squares = take(params.size());
  words_.stats = take(2 * params.size());
  words_.scalars = take(sizeof(UpdateScalars) / sizeof(double));
  words_.made = take(1);
  words_.clipped = take(1);
  words_.loss = take(1);
  words_.sums = words_.all;
  std::map<int64_t, size_t> counts, logits;
  for (const int64_t layer : after_.moe_layers) counts[layer] = take(static_cast<size_t>(after_.experts));
  for (size_t layer = 0; layer < after_.clip_layers.size(); ++layer)
    if (const auto heads = static_cast<size_t>(after_.clip_layers[layer].heads); heads > 0)
      logits[static_cast<int64_t>(layer)] = take(heads);
  block_ =
      Buffer(static_cast<int64_t>(words_.all * sizeof(double)), Backing::memory, device, "numbers of a step");
  sums_.loss = word(words_.loss);
  for (const auto& [layer, at] : counts) sums_.counts[layer] = word(at);
  for (const auto& [layer, at] : logits) sums_.logits[layer] = word(at);
  for (size_t i = 0; i < after_.biases.size(); ++i)
    balance_places_.push_back(after_.balance->place_on_device(i, after_.biases[i]));
}

KernelRange DeviceUpdate::whole_block() const {
  return {word(0), static_cast<int64_t>(words_.all * sizeof(double)), true};
}

size_t DeviceUpdate::index_of(const void* address) const {
  return static_cast<size_t>(static_cast<const double*>(address) - words_of(word(0)));
}

void DeviceUpdate::begin_step() {
  device_.set_zero(word(0), whole_block().bytes);
}

void DeviceUpdate::put_scalars(const StepArgs& args, bool balances, double clip_factor) {
  optimizer_.move_state_to_device();
  if (!balance_places_.empty()) after_.balance->move_state_to_device();
  const UpdateScalars scalars{args.lr, args.grad_scale, static_cast<double>(optimizer_.count_step()),
                              static_cast<double>(balances), clip_factor};
  device_.upload(word(words_.scalars), &scalars, sizeof(scalars));
}

void DeviceUpdate::launch_update(const StepArgs& args, bool balances,
                                 const std::map<int64_t, std::vector<int64_t>>& counts,
                                 const std::map<int64_t, std::vector<double>>& logits) {
  put_scalars(args, balances, args.clip_factor);
  const auto put = [&](void* words, const auto& values) {
    const std::vector<double> copy(values.begin(), values.end());
    device_.upload(words, copy.data(), static_cast<int64_t>(copy.size() * sizeof(double)));
  };
  for (const auto& [layer, words] : sums_.counts) put(words, counts.at(layer));
  for (const auto& [layer, words] : sums_.logits)
    if (const auto found = logits.find(layer); found != logits.end()) put(words, found->second);
  launch_update_kernels();
}

std::vector<double> DeviceUpdate::sum_squares(const Tensor& host_block) const {
  const double* const first = host_block.as<double>() + words_.sum_squares;
  return {first, first + place_.params.size()};
}

void DeviceUpdate::launch(const StepArgs& args, bool balances) {
  constexpr int64_t kEager = 2;  // the first ones allocate
  put_scalars(args, balances, 0);
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
  launch_norm();
  launch_update_kernels();
}

void DeviceUpdate::launch_update_kernels() const {
  launch_step();
  if (!sums_.logits.empty()) launch_clip();
  if (!after_.loads.empty() || !balance_places_.empty()) launch_balance();
}

const UpdateKernels* DeviceUpdate::norm_kernels() const {
  return select_update_kernels(device_.kind(), "the norm of gradients", place_.params);
}

void DeviceUpdate::launch_norm() const {
  const auto norm = std::make_shared<UpdateCall>(UpdateCall{place_, word(0), {}});
  for (ParamView& p : norm->place.params) add(norm->addresses, p.grad, p.numel(), false);
  norm->addresses.add(norm->block, whole_block().bytes, true);
  device_.launch(
      {norm->addresses.ranges(), [norm, kernels = norm_kernels(), w = words_](std::span<void* const> at) {
         norm->addresses.bind(at);
         const std::vector<ParamView>& params = norm->place.params;
         const std::vector<double> sums =
             kernels != nullptr ? kernels->sum_squares(params) : gradient_norm(params, 1).sum_squares;
         std::copy(sums.begin(), sums.end(), words_of(norm->block) + w.sum_squares);
       }});
}

void DeviceUpdate::launch_step() const {
  const auto update = std::make_shared<UpdateCall>(UpdateCall{place_, word(0), {}});
  for (size_t i = 0; i < update->place.params.size(); ++i) {
    ParamView& p = update->place.params[i];
    add(update->addresses, p.master, p.numel(), true);
    add(update->addresses, p.grad, p.numel(), false);
    Optimizer::State& state = update->place.state[i];
    for (size_t s = 0; s < state.moments.size(); ++s)
      add(update->addresses, state.moments[s], state.slots[s].shape.numel(), true);
  }
  update->addresses.add(update->block, whole_block().bytes, true);
  const UpdateKernels* const kernels = norm_kernels();
  device_.launch(
      {update->addresses.ranges(), [update, clip_of = kernels != nullptr ? kernels->clip_factor : clip_of,
                                    rules = optimizer_.kernels_on(device_.kind()), optimizer = &optimizer_,
                                    w = words_](std::span<void* const> at) {
         update->addresses.bind(at);
         double* const words = words_of(update->block);
         const size_t count = update->place.params.size();
         UpdateScalars scalars;
         std::memcpy(&scalars, words + w.scalars, sizeof(scalars));
         StepArgs args{.lr = scalars.lr, .grad_scale = scalars.grad_scale};
         const ClipFactor clip = clip_of(std::span<const double>(words + w.sum_squares, count),
                                         args.grad_scale, optimizer->config().clip, words[w.loss]);
         if (!clip.is_finite) return;
         args.clip_factor = scalars.clip_factor > 0 ? scalars.clip_factor : clip.factor;
         const std::vector<UpdateStat> stats =
             optimizer->step_at(update->place, args, static_cast<int64_t>(scalars.step), rules);
         for (size_t i = 0; i < count; ++i) {
           words[w.stats + 2 * i] = stats[i].update_rms;
           words[w.stats + 2 * i + 1] = stats[i].weight_rms;
         }
         words[w.made] = 1;
       }});
}

void DeviceUpdate::launch_clip() const {
  const auto call = std::make_shared<ClipCall>(ClipCall{after_.clip_layers, word(0), {}});
  for (QkClipLayer& layer : call->layers)
    for (QkRows* rows : rows_of(layer)) add(call->addresses, rows->param.master, rows->param.numel(), true);
  call->addresses.add(call->block, whole_block().bytes, true);
  std::vector<std::pair<size_t, size_t>> logits;  // layer, first word
  for (const auto& [layer, at] : sums_.logits) logits.emplace_back(layer, index_of(at));
  std::vector<ParamView> params;
  for (QkClipLayer& layer : call->layers)
    for (const QkRows* rows : rows_of(layer)) params.push_back(rows->param);
  device_.launch({call->addresses.ranges(),
                  [call, logits, kernels = select_update_kernels(device_.kind(), "QK-clip", params),
                   config = after_.clip, w = words_](std::span<void* const> at) {
                    call->addresses.bind(at);
                    double* const words = words_of(call->block);
                    if (words[w.made] == 0) return;
                    if (kernels != nullptr) {
                      std::vector<QkClipTask> tasks;
                      for (const auto& [index, first] : logits)
                        tasks.push_back({&call->layers[index], words + first});
                      return kernels->qk_clip(config, tasks, words + w.clipped);
                    }
                    for (const auto& [index, first] : logits) {
                      const QkClipLayer& layer = call->layers[index];
                      const std::span<const double> max_logit(words + first,
                                                              static_cast<size_t>(layer.heads));
                      words[w.clipped] += static_cast<double>(qk_clip(config, layer, max_logit));
                    }
                  }});
}

void DeviceUpdate::launch_balance() const {
  const int64_t experts = after_.experts, row = experts * static_cast<int64_t>(sizeof(float));
  std::vector<KernelRange> ranges{whole_block()};
  for (void* load : after_.loads) ranges.push_back({load, row, true});
  for (size_t i = 0; i < balance_places_.size(); ++i) {
    const BalanceController::Place& p = balance_places_[i];
    const int64_t classes = after_.balance->layers()[i].classes;
    ranges.push_back({p.bias, classes * static_cast<int64_t>(sizeof(float)), true});
    ranges.push_back({p.exp_avg, p.exp_avg != nullptr ? row : 0, true});
    ranges.push_back({p.exp_avg_sq, p.exp_avg_sq != nullptr ? row : 0, true});
    ranges.push_back({p.step, p.step != nullptr ? static_cast<int64_t>(sizeof(int64_t)) : 0, true});
  }
  device_.launch({std::move(ranges),
                  [experts, w = words_, layers = after_.moe_layers.size(), loads = after_.loads.size(),
                   balanced = balance_places_.size(), balance = after_.balance,
                   kernels = select_update_kernels(device_.kind(), "the balance of routers",
                                                   std::span<const ParamView>())](std::span<void* const> at) {
                    const double* const words = words_of(at[0]);
                    UpdateScalars scalars;
                    std::memcpy(&scalars, words + w.scalars, sizeof(scalars));
                    if (words[w.made] == 0) return;
                    std::vector<BalanceTask> tasks;
                    std::vector<BalanceArgs> biases(layers);
                    for (size_t i = 0; i < layers; ++i) {
                      BalanceTask task{words + w.sums + i * static_cast<size_t>(experts), experts,
                                       i < loads ? static_cast<float*>(at[1 + i]) : nullptr, nullptr};
                      if (i < balanced && scalars.balances != 0 && !balance->layers()[i].frozen) {
                        const auto place = at.subspan(1 + loads + 4 * i, 4);
                        biases[i] =
                            balance->args_at(i,
                                             {static_cast<float*>(place[0]), static_cast<float*>(place[1]),
                                              static_cast<float*>(place[2]), static_cast<int64_t*>(place[3])},
                                             task.counts);
                        task.biases = &biases[i];
                      }
                      tasks.push_back(task);
                    }
                    kernels != nullptr ? kernels->balance(tasks) : balance_on_host(tasks);
                  }});
}

Tensor DeviceUpdate::block() const {
  return {word(0), {static_cast<int64_t>(words_.all)}, DType::f64, device_.kind()};
}

DeviceUpdate::Result DeviceUpdate::take(const Tensor& host_block) {
  const auto* words = host_block.as<double>();
  const size_t count = place_.params.size();
  std::vector<UpdateStat> stats(count);
  for (size_t i = 0; i < count; ++i)
    stats[i] = {words[words_.stats + 2 * i], words[words_.stats + 2 * i + 1]};
  if (words[words_.made] != 0)
    optimizer_.take_stats(std::move(stats));
  else
    optimizer_.take_step_back();
  return {sum_squares(host_block), static_cast<int64_t>(words[words_.clipped])};
}

}  // namespace ingot
