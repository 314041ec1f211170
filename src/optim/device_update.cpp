// See device_update.h.
#include "optim/device_update.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "device/gpu/launch_through.h"
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

std::vector<ParamView> clipped_params(std::vector<QkClipLayer> layers) {
  std::vector<ParamView> params;
  for (QkClipLayer& layer : layers)
    for (const QkRows* rows : rows_of(layer)) params.push_back(rows->param);
  return params;
}

double* words_of(void* block) {
  return static_cast<double*>(block);
}

UpdateDecision decide_on_host(std::span<const double> sum_squares, double loss, double max_norm,
                              const StepScalars& scalars) {
  const ClipFactor clip = clip_of(sum_squares, scalars.grad_scale, max_norm, loss);
  return {clip.is_finite ? 1.0 : 0.0,
          scalars.grad_scale * (scalars.clip_factor > 0 ? scalars.clip_factor : clip.factor)};
}

void balance_on_host(std::span<const BalanceTask> layers, bool moves_biases) {
  for (const BalanceTask& layer : layers) {
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < layer.experts; ++i) counts.push_back(static_cast<int64_t>(layer.counts[i]));
    if (layer.load != nullptr) load_fractions(counts, layer.load);
    if (layer.biases != nullptr && moves_biases) INGOT_ISA_CALL(balance_experts)(*layer.biases);
  }
}

}  // namespace

DeviceUpdate::DeviceUpdate(DeviceKind device, Optimizer& optimizer, std::span<const ParamView> params,
                           AfterUpdate after)
    : device_(device_of(device)),
      optimizer_(optimizer),
      after_(std::move(after)),
      place_(optimizer.place_on_device(params)),
      norm_kernels_(select_update_kernels(device, "the norm of gradients", place_.params)),
      clip_kernels_(select_update_kernels(device, "QK-clip", clipped_params(after_.clip_layers))),
      balance_kernels_(select_update_kernels(device, "the balance of routers", std::span<const ParamView>())),
      rule_kernels_(optimizer.kernels_on(device)) {
  const auto take = [this](size_t count) { return std::exchange(words_.all, words_.all + count); };
  words_.scalars = take(sizeof(StepScalars) / sizeof(double));
  words_.numbers = take(optimizer.numbers(0).size());
  words_.rates = take(params.size());
  words_.sum_squares = take(params.size());
  words_.stats = take(2 * params.size());
  words_.decision = take(sizeof(UpdateDecision) / sizeof(double));
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

bool DeviceUpdate::takes_all() const {
  return device_.runs_host_kernels() ||
         (norm_kernels_ != nullptr && clip_kernels_ != nullptr && balance_kernels_ != nullptr &&
          std::ranges::all_of(rule_kernels_, [](const auto& rule) { return rule.second != nullptr; }));
}

DeviceStep DeviceUpdate::step_at(void* block) {
  double* const words = words_of(block);
  return {.scalars = reinterpret_cast<const StepScalars*>(words + words_.scalars),
          .decision = reinterpret_cast<const UpdateDecision*>(words + words_.decision),
          .numbers = words + words_.numbers,
          .rates = words + words_.rates,
          .stats = reinterpret_cast<UpdateStat*>(words + words_.stats),
          .lists = device_.runs_host_kernels() ? nullptr : &lists_};
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
  INGOT_CHECK(std::isfinite(args.lr) && std::isfinite(args.grad_scale), "lr = {}, gradient factor = {}",
              args.lr, args.grad_scale);
  optimizer_.move_state_to_device();
  if (!balance_places_.empty()) after_.balance->move_state_to_device();
  const int64_t step = optimizer_.count_step();
  std::vector<double> words{args.lr, args.grad_scale, static_cast<double>(step),
                            static_cast<double>(balances), clip_factor};
  std::ranges::copy(optimizer_.numbers(step), std::back_inserter(words));
  std::ranges::copy(optimizer_.rates(args.lr), std::back_inserter(words));
  INGOT_CHECK(words.size() == words_.sum_squares, "the optimizer's numbers of a step have become more");
  device_.upload(word(0), words.data(), static_cast<int64_t>(words.size() * sizeof(double)));
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
  constexpr int64_t kEager = 2;  // the first ones allocate, and copy lists
  put_scalars(args, balances, 0);
  if (config_ != optimizer_.config_version()) {  // kernels have some of the settings inside
    config_ = optimizer_.config_version();
    graph_ = {};
    eager_ = std::min(eager_, kEager - 1);
  }
  if (!device_.captures_graphs() || eager_ < kEager) {
    ++eager_;
    return launch_kernels();
  }
  if (graph_.work == nullptr) {
    device_.begin_capture();
    launch_kernels();
    graph_ = device_.end_capture();
  }
  device_.replay(graph_);
}

/// Nothing of a step is in what these capture: it is in the block.
void DeviceUpdate::launch_kernels() {
  lists_.restart();
  launch_norm();
  launch_update_kernels();
}

void DeviceUpdate::launch_update_kernels() {
  launch_step();
  if (!sums_.logits.empty()) launch_clip();
  if (!after_.loads.empty() || !balance_places_.empty()) launch_balance();
}

void DeviceUpdate::launch_norm() {
  const auto norm = std::make_shared<UpdateCall>(UpdateCall{place_, word(0), {}});
  for (ParamView& p : norm->place.params) add(norm->addresses, p.grad, p.numel(), false);
  norm->addresses.add(norm->block, whole_block().bytes, true);
  launch_through(device_, {norm->addresses.ranges(), [this, norm](std::span<void* const> at) {
                             norm->addresses.bind(at);
                             double* const sums = words_of(norm->block) + words_.sum_squares;
                             if (norm_kernels_ != nullptr)
                               return norm_kernels_->sum_squares(norm->place.params, sums,
                                                                 step_at(norm->block).lists);
                             std::ranges::copy(gradient_norm(norm->place.params, 1).sum_squares, sums);
                           }});
}

void DeviceUpdate::launch_step() {
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
  launch_through(device_, {update->addresses.ranges(), [this, update](std::span<void* const> at) {
                             update->addresses.bind(at);
                             double* const words = words_of(update->block);
                             const DeviceStep step = step_at(update->block);
                             const std::vector<ParamView>& params = update->place.params;
                             auto* const decision =
                                 reinterpret_cast<UpdateDecision*>(words + words_.decision);
                             const double max_norm = optimizer_.config().clip;
                             if (norm_kernels_ != nullptr)
                               norm_kernels_->decide(params, words + words_.sum_squares, words + words_.loss,
                                                     max_norm, step.scalars, decision);
                             else
                               *decision = decide_on_host({words + words_.sum_squares, params.size()},
                                                          words[words_.loss], max_norm, *step.scalars);
                             optimizer_.launch_at(update->place, rule_kernels_, step);
                           }});
}

void DeviceUpdate::launch_clip() {
  const auto call = std::make_shared<ClipCall>(ClipCall{after_.clip_layers, word(0), {}});
  for (QkClipLayer& layer : call->layers)
    for (QkRows* rows : rows_of(layer)) add(call->addresses, rows->param.master, rows->param.numel(), true);
  call->addresses.add(call->block, whole_block().bytes, true);
  std::vector<std::pair<size_t, size_t>> logits;  // layer, first word
  for (const auto& [layer, at] : sums_.logits) logits.emplace_back(layer, index_of(at));
  launch_through(
      device_, {call->addresses.ranges(), [this, call, logits](std::span<void* const> at) {
                  call->addresses.bind(at);
                  double* const words = words_of(call->block);
                  const DeviceStep step = step_at(call->block);
                  if (clip_kernels_ != nullptr) {
                    std::vector<QkClipTask> tasks;
                    for (const auto& [index, first] : logits)
                      tasks.push_back({&call->layers[index], words + first});
                    return clip_kernels_->qk_clip(after_.clip, tasks, words + words_.clipped, step);
                  }
                  if (step.decision->made == 0) return;
                  for (const auto& [index, first] : logits) {
                    const QkClipLayer& layer = call->layers[index];
                    const std::span<const double> max_logit(words + first, static_cast<size_t>(layer.heads));
                    words[words_.clipped] += static_cast<double>(qk_clip(after_.clip, layer, max_logit));
                  }
                }});
}

void DeviceUpdate::launch_balance() {
  const int64_t row = after_.experts * static_cast<int64_t>(sizeof(float));
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
  launch_through(device_, {std::move(ranges), [this](std::span<void* const> at) { balance_at(at); }});
}

void DeviceUpdate::balance_at(std::span<void* const> at) {
  const double* const words = words_of(at[0]);
  const DeviceStep step = step_at(at[0]);
  const size_t layers = after_.moe_layers.size(), loads = after_.loads.size();
  std::vector<BalanceTask> tasks;
  std::vector<BalanceArgs> biases(layers);
  for (size_t i = 0; i < layers; ++i) {
    BalanceTask task{words + words_.sums + i * static_cast<size_t>(after_.experts), after_.experts,
                     i < loads ? static_cast<float*>(at[1 + i]) : nullptr, nullptr};
    if (i < balance_places_.size() && !after_.balance->layers()[i].frozen) {
      const auto place = at.subspan(1 + loads + 4 * i, 4);
      biases[i] = after_.balance->args_at(i,
                                          {static_cast<float*>(place[0]), static_cast<float*>(place[1]),
                                           static_cast<float*>(place[2]), static_cast<int64_t*>(place[3])},
                                          task.counts);
      task.biases = &biases[i];
    }
    tasks.push_back(task);
  }
  if (balance_kernels_ != nullptr) return balance_kernels_->balance(tasks, step);
  if (step.decision->made != 0) balance_on_host(tasks, step.scalars->balances != 0);
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
  if (words[words_.decision] != 0)  // UpdateDecision::made
    optimizer_.take_stats(std::move(stats));
  else
    optimizer_.take_step_back();
  return {sum_squares(host_block), static_cast<int64_t>(words[words_.clipped])};
}

}  // namespace ingot
