// See balance.h.
#include "optim/balance.h"

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace ingot {

BalanceController::BalanceController(BalanceConfig config, std::vector<BalanceView> layers, DeviceKind device)
    : config_(config), layers_(std::move(layers)) {
  validate(config_.adamw);
  if (!(config_.rate >= 0)) fail("the balancing bias has rate = {}, expected >= 0", config_.rate);
  std::vector<int64_t> counts;
  for (const BalanceView& layer : layers_) {
    INGOT_CHECK(layer.experts >= 1 && layer.experts <= layer.classes && layer.bias,
                "'{}': {} experts, {} classes", layer.name, layer.experts, layer.classes);
    counts.push_back(layer.experts);
  }
  offsets_ = flat_offsets(counts);
  if (config_.rule == BalanceRule::sign) return;
  const auto floats = static_cast<int64_t>(2 * sizeof(float)) * offsets_.back();
  state_ = Buffer(floats + static_cast<int64_t>(sizeof(int64_t) * layers_.size()), Backing::memory, device,
                  "state of the balancing biases");
}

BalanceController::Place BalanceController::place(size_t layer, void* state) const {
  if (config_.rule == BalanceRule::sign) return {layers_[layer].bias};
  auto* const moments = static_cast<float*>(state);
  auto* const steps = reinterpret_cast<int64_t*>(moments + 2 * offsets_.back());
  return {layers_[layer].bias, moments + offsets_[layer], moments + offsets_.back() + offsets_[layer],
          steps + layer};
}

BalanceController::Place BalanceController::place_on_device(size_t layer, void* bias) const {
  Place there = place(layer, state_.bytes() > 0 ? state_.on_device() : nullptr);
  there.bias = static_cast<float*>(bias);
  return there;
}

void BalanceController::move_state_to_device() const {
  if (state_.bytes() > 0) state_.on_device();
}

void BalanceController::step(size_t index, std::span<const int64_t> counts) {
  INGOT_CHECK(index < layers_.size(), "layer {} of {}", index, layers_.size());
  const BalanceView& layer = layers_[index];
  INGOT_CHECK(static_cast<int64_t>(counts.size()) == layer.classes, "'{}': {} counts for {} classes",
              layer.name, counts.size(), layer.classes);
  if (layer.frozen) return;
  const std::vector<double> real(counts.begin(), counts.begin() + layer.experts);
  INGOT_ISA_CALL(balance_experts)(args_at(index, place(index, state_.data()), real.data()));
}

BalanceArgs BalanceController::args_at(size_t index, const Place& at, const double* counts) const {
  const AdamWConfig& c = config_.adamw;
  return {counts,
          layers_[index].experts,
          config_.rule == BalanceRule::sign ? 1 : 0,
          config_.rate,
          c.beta1,
          c.beta2,
          c.eps,
          at.bias,
          at.exp_avg,
          at.exp_avg_sq,
          at.step};
}

void BalanceController::for_each_state(const std::function<void(const std::string&, const Tensor&)>& fn) {
  if (config_.rule == BalanceRule::sign) return;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Shape shape{layers_[i].experts};
    const Place at = place(i, state_.data());
    fn(layers_[i].name + ".exp_avg", Tensor::of(at.exp_avg, shape));
    fn(layers_[i].name + ".exp_avg_sq", Tensor::of(at.exp_avg_sq, shape));
    fn(layers_[i].name + ".step", Tensor::of(at.step, Shape{}));
  }
}

void load_fractions(std::span<const int64_t> counts, float* load) {
  const auto sum = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  for (size_t e = 0; e < counts.size() && sum > 0; ++e)
    load[e] = static_cast<float>(static_cast<double>(counts[e]) / sum);
}

double normalized_load_entropy(std::span<const int64_t> counts, int64_t experts) {
  INGOT_CHECK(experts <= static_cast<int64_t>(counts.size()), "{} experts, {} counts", experts,
              counts.size());
  const auto real = counts.first(static_cast<size_t>(experts));
  const double total = static_cast<double>(std::accumulate(real.begin(), real.end(), int64_t{0}));
  if (experts < 2 || total <= 0) return 0;
  double entropy = 0;
  for (const int64_t n : real) {
    const double f = static_cast<double>(n) / total;
    if (n > 0) entropy -= f * std::log(f);
  }
  return entropy / std::log(static_cast<double>(experts));
}

}  // namespace ingot
