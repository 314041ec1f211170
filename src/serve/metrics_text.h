// What a server counts, as a page for Prometheus under the names of vLLM, so that dashboards made for it show
// this server. Thread-safe. (vLLM docs/design/metrics)
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "infer/engine.h"
#include "report/prometheus.h"

namespace ingot::serve {

/// Counts of observations up to each of some bounds.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  void add_to(PrometheusPage& page, const std::string& name, const std::string& help,
              const MetricLabels& labels) const;

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
  const MetricLabels labels_;
  mutable std::mutex mutex_;
  Histogram first_, next_, whole_;
  std::array<int64_t, 6> finished_{};  // by FinishReason
  int64_t refused_ = 0;
};

}  // namespace ingot::serve
