// A strict reader of Prometheus' text format, for pages that the program makes (report/prometheus.h).
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace ingot::test {

struct PrometheusText {
  std::map<std::string, double> samples;  ///< by "name{label=\"value\",...}" as the page has them
  std::string problems;                   ///< empty: all of the page is of the format
};

/// What is a problem: lines, names, escapes or numbers that are not of the format; a metric without HELP and
/// TYPE before its samples, twice, or of a kind that its name denies; a sample twice; buckets of a histogram
/// that fall or do not end with its count.
PrometheusText read_prometheus(const std::string& page);

/// Where a program that was given --metrics says it serves them, on 127.0.0.1; 0: it has not said so yet.
uint16_t metrics_port(const std::string& output);

}  // namespace ingot::test
