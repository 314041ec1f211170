// See metrics_text.h.
#include "serve/metrics_text.h"

#include <fmt/core.h>

#include <algorithm>

namespace ingot::serve {
namespace {

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

void Histogram::add_to(PrometheusPage& page, const std::string& name, const std::string& help,
                       const MetricLabels& labels) const {
  page.begin(name, MetricKind::histogram, help);
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    MetricLabels bucket = labels;
    bucket.emplace_back("le", i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf");
    page.add(static_cast<double>(below), bucket, "_bucket");
  }
  page.add(sum_, labels, "_sum");
  page.add(static_cast<double>(below), labels, "_count");
}

ServerMetrics::ServerMetrics(std::string model)
    : labels_{{"model_name", std::move(model)}},
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
  PrometheusPage page;
  const auto one = [&](MetricKind kind, const char* name, const char* help, double value) {
    page.one(name, kind, help, value, labels_);
  };
  const auto count = [&](const char* name, const char* help, int64_t value) {
    one(MetricKind::counter, name, help, static_cast<double>(value));
  };
  one(MetricKind::gauge, "vllm:num_requests_running", "Samples with cached tokens.",
      static_cast<double>(e.running));
  one(MetricKind::gauge, "vllm:num_requests_waiting", "Samples that wait for their first token.",
      static_cast<double>(e.waiting));
  const double limit = static_cast<double>(std::max<int64_t>(e.page_limit, 1));
  one(MetricKind::gauge, "vllm:kv_cache_usage_perc", "Pages of the cache in use, 1 for all.",
      static_cast<double>(e.pages) / limit);
  count("vllm:prefix_cache_queries_total", "Tokens of prompts.", e.prompt_tokens);
  count("vllm:prefix_cache_hits_total", "Tokens of prompts that were found in the prefix cache.",
        e.cached_tokens);
  count("vllm:prompt_tokens_total", "Tokens of prompts.", e.prompt_tokens);
  count("vllm:generation_tokens_total", "Tokens that were made.", e.output_tokens);
  count("vllm:num_preemptions_total", "Times that a sample gave its pages back.", e.preemptions);
  const std::lock_guard lock(mutex_);
  page.begin("vllm:request_success_total", MetricKind::counter, "Samples that ended, by reason.");
  for (const char* word : {"stop", "length", "abort", "error"}) {
    int64_t ended = 0;
    for (size_t i = 0; i < finished_.size(); ++i)
      if (reason_word(static_cast<FinishReason>(i)) == std::string_view(word)) ended += finished_[i];
    MetricLabels labels = labels_;
    labels.emplace_back("finished_reason", word);
    page.add(static_cast<double>(ended), labels);
  }
  count("ingot:requests_refused_total", "Requests that got 429.", refused_);
  first_.add_to(page, "vllm:time_to_first_token_seconds", "From the request to its first token.", labels_);
  next_.add_to(page, "vllm:inter_token_latency_seconds", "Between tokens of a sample.", labels_);
  whole_.add_to(page, "vllm:e2e_request_latency_seconds", "From the request to a sample's end.", labels_);
  return page.text();
}

}  // namespace ingot::serve
