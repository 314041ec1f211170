// See metrics_text.h.
#include "serve/metrics_text.h"

#include <fmt/core.h>

#include <algorithm>

namespace ingot::serve {
namespace {

std::string metric(const std::string& name, const char* type, const std::string& help,
                   const std::string& rows) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n{}", name, help, name, type, rows);
}

/// A label's value: quotes, backslashes and newlines are escaped.
std::string label_value(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

/// The word of vLLM for what ended a request.
const char* reason_word(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop_id:
    case FinishReason::stop_string:
      return "stop";
    case FinishReason::max_tokens:
    case FinishReason::context:
      return "length";
    case FinishReason::cancelled:
      return "abort";
    case FinishReason::failed:
      return "error";
  }
  return "";
}

}  // namespace

void Histogram::add(double value) {
  ++counts_[static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin())];
  sum_ += value;
}

std::string Histogram::text(const std::string& name, const std::string& help,
                            const std::string& labels) const {
  std::string rows;
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    rows += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, below);
  }
  rows += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, below);
  return metric(name, "histogram", help, rows);
}

ServerMetrics::ServerMetrics(std::string model)
    : labels_("model_name=\"" + label_value(model) + "\""),
      first_(
          {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640}),
      next_({.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
             .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80}),
      whole_({.01, .05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960}) {}

void ServerMetrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_.add(seconds);
}

void ServerMetrics::next_token(double seconds) {
  const std::lock_guard lock(mutex_);
  next_.add(seconds);
}

void ServerMetrics::finished(FinishReason reason, double seconds) {
  const std::lock_guard lock(mutex_);
  ++finished_[static_cast<size_t>(reason)];
  whole_.add(seconds);
}

void ServerMetrics::add_one(int64_t& count) {
  const std::lock_guard lock(mutex_);
  ++count;
}

std::string ServerMetrics::text(const EngineStats& e) const {
  std::string all;
  const auto one = [&](const char* name, const char* type, const char* help, auto value) {
    all += metric(name, type, help, fmt::format("{}{{{}}} {}\n", name, labels_, value));
  };
  one("vllm:num_requests_running", "gauge", "Samples with cached tokens.", e.running);
  one("vllm:num_requests_waiting", "gauge", "Samples that wait for their first token.", e.waiting);
  const double limit = static_cast<double>(std::max<int64_t>(e.page_limit, 1));
  one("vllm:kv_cache_usage_perc", "gauge", "Pages of the cache in use, 1 for all.",
      static_cast<double>(e.pages) / limit);
  one("vllm:prefix_cache_queries_total", "counter", "Tokens of prompts.", e.prompt_tokens);
  one("vllm:prefix_cache_hits_total", "counter", "Tokens of prompts that were found in the prefix cache.",
      e.cached_tokens);
  one("vllm:prompt_tokens_total", "counter", "Tokens of prompts.", e.prompt_tokens);
  one("vllm:generation_tokens_total", "counter", "Tokens that were made.", e.output_tokens);
  one("vllm:num_preemptions_total", "counter", "Times that a sample gave its pages back.", e.preemptions);
  const std::lock_guard lock(mutex_);
  std::string rows;
  for (const char* word : {"stop", "length", "abort", "error"}) {
    int64_t count = 0;
    for (size_t i = 0; i < finished_.size(); ++i)
      if (reason_word(static_cast<FinishReason>(i)) == std::string_view(word)) count += finished_[i];
    rows += fmt::format("vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels_, word, count);
  }
  all += metric("vllm:request_success_total", "counter", "Samples that ended, by reason.", rows);
  one("ingot:requests_refused_total", "counter", "Requests that got 429.", refused_);
  all += first_.text("vllm:time_to_first_token_seconds", "From the request to its first token.", labels_);
  all += next_.text("vllm:inter_token_latency_seconds", "Between tokens of a sample.", labels_);
  all += whole_.text("vllm:e2e_request_latency_seconds", "From the request to a sample's end.", labels_);
  return all;
}

}  // namespace ingot::serve
