// See health.h.
#include "train/health.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot {

double LossWatch::deviation() const {
  return std::sqrt(variance_);
}

LossWatch::Verdict LossWatch::observe(int64_t step, double loss, double gradient_norm) {
  dead_steps_ = gradient_norm == 0 ? dead_steps_ + 1 : 0;
  if (limits_.dead_patience > 0 && dead_steps_ >= limits_.dead_patience) return Verdict::dead;
  const bool judged = limits_.sigma > 0 && seen_ >= kWarmup;
  if (judged && loss > mean_ + std::max(0.5, limits_.sigma * deviation())) {
    if (first_spike_ == 0) first_spike_ = step;
    last_spike_ = step;
    return ++spike_steps_ >= limits_.patience ? Verdict::diverged : Verdict::spike;
  }
  spike_steps_ = 0;
  if (first_spike_ > 0 && step - last_spike_ >= limits_.patience) first_spike_ = last_spike_ = 0;
  const double weight = seen_ == 0 ? 1 : 1 - kDecay;
  const double delta = loss - mean_;
  mean_ += weight * delta;
  variance_ = (1 - weight) * (variance_ + weight * delta * delta);
  ++seen_;
  return Verdict::fine;
}

std::string LossWatch::json() const {
  nlohmann::json j{{"mean", mean_}, {"variance", variance_}, {"seen", seen_}, {"spike_steps", spike_steps_}};
  if (first_spike_ > 0) j["spikes"] = {first_spike_, last_spike_};
  if (dead_steps_ > 0) j["dead_steps"] = dead_steps_;
  return j.dump();
}

void LossWatch::restore(const std::string& text) {
  const auto j = nlohmann::json::parse(text, nullptr, false);
  try {
    mean_ = j.at("mean").get<double>();
    variance_ = j.at("variance").get<double>();
    seen_ = j.at("seen").get<int64_t>();
    spike_steps_ = j.at("spike_steps").get<int64_t>();
    first_spike_ = j.contains("spikes") ? j.at("spikes").at(0).get<int64_t>() : 0;
    last_spike_ = j.contains("spikes") ? j.at("spikes").at(1).get<int64_t>() : 0;
    dead_steps_ = j.value("dead_steps", int64_t{0});
  } catch (const nlohmann::json::exception&) {
    fail("the saved state of the loss watch is damaged: {}", text);
  }
}

}  // namespace ingot
