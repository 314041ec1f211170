// A page of metrics in Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats"): what
// `ingot run`, `ingot guard` and `ingot serve` answer to GET /metrics.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/enum.h"

namespace ingot {

inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

enum class MetricKind : uint8_t { counter, gauge, histogram };
constexpr auto enum_names(MetricKind) {
  return names_in_order<MetricKind>("counter", "gauge", "histogram");
}

/// Names with their values, which may be any text.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// Builds a page, metric by metric. Not thread-safe.
class PrometheusPage {
 public:
  /// A metric, whose samples follow. Names are [a-zA-Z_:][a-zA-Z0-9_:]*, in base units (seconds, bytes), of
  /// counters with "_total" at the end. A name comes once.
  void begin(std::string_view name, MetricKind kind, std::string_view help);
  /// Of the metric that began last. `suffix`: "_bucket", "_sum", "_count" of a histogram.
  void add(double value, const MetricLabels& labels = {}, std::string_view suffix = "");
  /// A metric of one sample.
  void one(std::string_view name, MetricKind kind, std::string_view help, double value,
           const MetricLabels& labels = {});
  const std::string& text() const { return text_; }

 private:
  std::string name_, text_;
};

}  // namespace ingot
