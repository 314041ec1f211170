// See gpu_update.h.
#include "optim/gpu_update.h"

#include <algorithm>
#include <utility>

#include "optim/update_kernels.h"

namespace ingot {

GpuUpdate::GpuUpdate(CudaDevice& device, Optimizer& optimizer, std::span<const ParamView> params,
                     AfterUpdate after)
    : device_(device),
      optimizer_(optimizer),
      after_(std::move(after)),
      place_(optimizer.place_on_device(params)),
      kernels_(select_update_kernels(device.kind(), "the norm of gradients", place_.params)),
      rules_(optimizer.kernels_on(device.kind())) {
  for (size_t i = 0; i < after_.biases.size(); ++i)
    balance_places_.push_back(after_.balance->place_on_device(i, after_.biases[i]));
}

bool GpuUpdate::takes_all() const {
  return kernels_ != nullptr &&
         std::all_of(rules_.begin(), rules_.end(), [](const auto& rule) { return rule.second != nullptr; });
}

std::vector<double> GpuUpdate::sum_squares() const {
  const LaunchOn on(&device_);
  return kernels_->sum_squares(place_.params);
}

int64_t GpuUpdate::update(const StepArgs& args, bool balances,
                          const std::map<int64_t, std::vector<int64_t>>& counts,
                          const std::map<int64_t, std::vector<double>>& logits) {
  optimizer_.move_state_to_device();
  if (!balance_places_.empty()) after_.balance->move_state_to_device();
  const LaunchOn on(&device_);
  optimizer_.take_stats(optimizer_.step_at(place_, args, optimizer_.count_step(), rules_));
  balance(balances, counts);
  return clip(logits);
}

int64_t GpuUpdate::clip(const std::map<int64_t, std::vector<double>>& logits) const {
  std::vector<QkClipTask> tasks;
  for (size_t i = 0; i < after_.clip_layers.size(); ++i)
    if (const auto found = logits.find(static_cast<int64_t>(i)); found != logits.end())
      tasks.push_back({&after_.clip_layers[i], found->second.data()});
  double clipped = 0;
  if (!tasks.empty()) kernels_->qk_clip(after_.clip, tasks, &clipped);
  return static_cast<int64_t>(clipped);
}

void GpuUpdate::balance(bool moves, const std::map<int64_t, std::vector<int64_t>>& counts) const {
  const size_t layers = after_.moe_layers.size();
  std::vector<std::vector<double>> chosen(layers);
  std::vector<BalanceArgs> biases(layers);
  std::vector<BalanceTask> tasks;
  for (size_t i = 0; i < layers; ++i) {
    const std::vector<int64_t>& whole = counts.at(after_.moe_layers[i]);
    chosen[i].assign(whole.begin(), whole.begin() + after_.experts);
    BalanceTask task{chosen[i].data(), after_.experts,
                     i < after_.loads.size() ? static_cast<float*>(after_.loads[i]) : nullptr, nullptr};
    if (i < balance_places_.size() && moves && !after_.balance->layers()[i].frozen) {
      biases[i] = after_.balance->args_at(i, balance_places_[i], task.counts);
      task.biases = &biases[i];
    }
    if (task.load != nullptr || task.biases != nullptr) tasks.push_back(task);
  }
  if (!tasks.empty()) kernels_->balance(tasks);
}

}  // namespace ingot
