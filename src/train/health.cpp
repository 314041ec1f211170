// See health.h.
#include "train/health.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot {

double LossWatch::deviation() const {
  return std::sqrt(variance_);
}

LossWatch::Verdict LossWatch::observe(double loss) {
  const bool judged = sigma_ > 0 && seen_ >= kWarmup;
  if (judged && loss > mean_ + std::max(0.5, sigma_ * deviation()))
    return ++spike_steps_ >= patience_ ? Verdict::diverged : Verdict::spike;
  spike_steps_ = 0;
  const double weight = seen_ == 0 ? 1 : 1 - kDecay;
  const double delta = loss - mean_;
  mean_ += weight * delta;
  variance_ = (1 - weight) * (variance_ + weight * delta * delta);
  ++seen_;
  return Verdict::fine;
}

std::string LossWatch::json() const {
  return nlohmann::json{
      {"mean", mean_}, {"variance", variance_}, {"seen", seen_}, {"spike_steps", spike_steps_}}
      .dump();
}

void LossWatch::restore(const std::string& text) {
  const auto j = nlohmann::json::parse(text, nullptr, false);
  try {
    mean_ = j.at("mean").get<double>();
    variance_ = j.at("variance").get<double>();
    seen_ = j.at("seen").get<int64_t>();
    spike_steps_ = j.at("spike_steps").get<int64_t>();
  } catch (const nlohmann::json::exception&) {
    fail("the saved state of the loss watch is damaged: {}", text);
  }
}

}  // namespace ingot
