// What a server counts, in Prometheus' text format (version 0.0.4) under the names of vLLM, so that
// dashboards made for it show this server. Thread-safe. (vLLM docs/design/metrics)
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "infer/engine.h"

namespace ingot::serve {

/// Counts of observations up to each of some bounds.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  std::string text(const std::string& name, const std::string& help, const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // the last: above all bounds
  double sum_ = 0;
};

class ServerMetrics {
 public:
  explicit ServerMetrics(std::string model);
  void first_token(double seconds);
  void next_token(double seconds);
  /// The end of one sample.
  void finished(FinishReason reason, double seconds);
  void refused() { add_one(refused_); }
  std::string text(const EngineStats& engine) const;

 private:
  void add_one(int64_t& count);
  const std::string labels_;
  mutable std::mutex mutex_;
  Histogram first_, next_, whole_;
  std::array<int64_t, 6> finished_{};  // by FinishReason
  int64_t refused_ = 0;
};

}  // namespace ingot::serve
