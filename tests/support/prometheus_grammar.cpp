// See prometheus_grammar.h.
#include "support/prometheus_grammar.h"

#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>

namespace ingot::test {
namespace {

const std::string kMetricName = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const std::string kLabel = "[a-zA-Z_][a-zA-Z0-9_]*=\"(?:[^\"\\\\\n]|\\\\[\\\\\"n])*\"";

class PageReader {
 public:
  PrometheusText read(const std::string& page) {
    expect(page.empty() || page.back() == '\n', "the last line has no end");
    std::istringstream lines(page);
    while (std::getline(lines, line_)) line_.starts_with("#") ? comment() : sample();
    return std::move(read_);
  }

 private:
  void expect(bool holds, const char* what) {
    if (!holds) read_.problems += line_ + ": " + what + "\n";
  }
  void comment() {
    static const std::regex help("# HELP (" + kMetricName + ") ((?:[^\\\\]|\\\\[\\\\n])+)"),
        type("# TYPE (" + kMetricName + ") (counter|gauge|histogram)");
    std::smatch m;
    if (std::regex_match(line_, m, help)) {
      expect(metrics_.insert(m[1]).second, "a metric twice");
      name_ = m[1], kind_.clear();
      bucket_ = 0, ends_ = false;
    } else if (std::regex_match(line_, m, type)) {
      expect(m[1] == name_, "HELP is of another metric");
      expect(kind_.empty(), "TYPE twice");
      kind_ = m[2];
      expect((kind_ == "counter") == name_.ends_with("_total"), "counters, and only they, end with _total");
    } else {
      expect(false, "neither HELP nor TYPE");
    }
  }
  void sample() {
    static const std::regex form("(" + kMetricName + ")((?:\\{" + kLabel + "(?:," + kLabel +
                                 ")*\\})?) (NaN|[+-]Inf|-?[0-9]+(?:\\.[0-9]+)?(?:e[+-][0-9]+)?)");
    std::smatch m;
    if (!std::regex_match(line_, m, form)) return expect(false, "no sample");
    const std::string name = m[1], labels = m[2];
    const double value = std::strtod(m[3].str().c_str(), nullptr);
    expect(!kind_.empty(), "a sample before HELP and TYPE");
    expect(read_.samples.emplace(name + labels, value).second, "a sample twice");
    const std::string suffix = name.starts_with(name_) ? name.substr(name_.size()) : "?";
    expect(kind_ != "counter" || value >= 0, "a counter below 0");
    if (kind_ != "histogram") return expect(suffix.empty(), "of another metric");
    if (suffix == "_bucket") {
      expect(value >= bucket_, "buckets count all below");
      expect(labels.find("le=\"") != labels.npos, "a bucket without a bound");
      bucket_ = value;
      ends_ = labels.find("le=\"+Inf\"") != labels.npos;
    } else if (suffix == "_count") {
      expect(ends_ && value == bucket_, "the last bucket counts all");
    } else {
      expect(suffix == "_sum", "of another metric");
    }
  }

  PrometheusText read_;
  std::set<std::string> metrics_;
  std::string line_, name_, kind_;
  double bucket_ = 0;
  bool ends_ = false;
};

}  // namespace

PrometheusText read_prometheus(const std::string& page) {
  return PageReader().read(page);
}

uint16_t metrics_port(const std::string& output) {
  static const std::regex line("metrics for Prometheus: http://127.0.0.1:([0-9]+)/metrics");
  std::smatch found;
  return std::regex_search(output, found, line) ? static_cast<uint16_t>(std::stoi(found[1])) : uint16_t{0};
}

}  // namespace ingot::test
