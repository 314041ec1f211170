// See balance.h.
#include "optim/balance.h"

#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace ingot {

BalanceController::BalanceController(BalanceConfig config, std::vector<BalanceView> layers)
    : config_(config), layers_(std::move(layers)), steps_(layers_.size(), 0) {
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
  exp_avg_ = FloatBuffer(offsets_.back());
  exp_avg_sq_ = FloatBuffer(offsets_.back());
}

void BalanceController::step(size_t index, std::span<const int64_t> counts) {
  INGOT_CHECK(index < layers_.size(), "layer {} of {}", index, layers_.size());
  const BalanceView& layer = layers_[index];
  INGOT_CHECK(static_cast<int64_t>(counts.size()) == layer.classes, "'{}': {} counts for {} classes",
              layer.name, counts.size(), layer.classes);
  const auto real = counts.first(static_cast<size_t>(layer.experts));
  const int64_t total = std::accumulate(real.begin(), real.end(), int64_t{0});
  if (layer.frozen || total == 0) return;
  if (config_.rule == BalanceRule::sign) {
    for (size_t i = 0; i < real.size(); ++i) {
      const int64_t excess = real[i] * layer.experts - total;  // sign(n_i - mean), in integers
      if (excess != 0) layer.bias[i] += static_cast<float>(excess > 0 ? -config_.rate : config_.rate);
    }
    return;
  }
  std::vector<float> error(real.size());
  for (size_t i = 0; i < real.size(); ++i)
    error[i] = static_cast<float>(static_cast<double>(real[i]) / static_cast<double>(total) -
                                  1.0 / static_cast<double>(layer.experts));
  const ParamView view{
      .name = layer.name, .shape = {layer.experts}, .master = layer.bias, .grad = error.data()};
  const AdamWTensor tensor{&view, exp_avg_.data() + offsets_[index], exp_avg_sq_.data() + offsets_[index],
                           config_.rate, 0.0};
  adamw_step({&tensor, 1}, config_.adamw, ++steps_[index], 1.0);
}

void BalanceController::for_each_state(const std::function<void(const std::string&, const Tensor&)>& fn) {
  if (config_.rule == BalanceRule::sign) return;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Shape shape{layers_[i].experts};
    fn(layers_[i].name + ".exp_avg", Tensor::of(exp_avg_.data() + offsets_[i], shape));
    fn(layers_[i].name + ".exp_avg_sq", Tensor::of(exp_avg_sq_.data() + offsets_[i], shape));
    fn(layers_[i].name + ".step", Tensor::of(&steps_[i], Shape{}));
  }
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
