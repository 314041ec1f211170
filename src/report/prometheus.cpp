// See prometheus.h.
#include "report/prometheus.h"

#include <fmt/core.h>

#include <cmath>

namespace ingot {
namespace {

/// Backslashes and newlines are escaped, and quotes of a label's value.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void PrometheusPage::begin(std::string_view name, MetricKind kind, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, escaped(help, false), name_of(kind));
}

void PrometheusPage::add(double value, const MetricLabels& labels, std::string_view suffix) {
  text_ += name_;
  text_ += suffix;
  for (size_t i = 0; i < labels.size(); ++i)
    text_ += fmt::format("{}{}=\"{}\"", i == 0 ? '{' : ',', labels[i].first, escaped(labels[i].second, true));
  if (!labels.empty()) text_ += '}';
  text_ += ' ' + number_text(value) + '\n';
}

void PrometheusPage::one(std::string_view name, MetricKind kind, std::string_view help, double value,
                         const MetricLabels& labels) {
  begin(name, kind, help);
  add(value, labels);
}

}  // namespace ingot
