// The server's API over one model: OpenAI's endpoints, those that tools expect of vLLM, and the page. Routes
// requests to the engine and runs its loop.
//
//   GET  / /page.css /page.js    the page          GET  /health /metrics /version
//   POST /v1/completions         POST /v1/chat/completions         GET /v1/models
//   POST /tokenize               POST /detokenize                  GET /tokenizer_info
//
// Only /, its two files and /health answer without the key. Threads: handle() on the server's; the engine's
// loop on the one that calls run(); one more writes replies.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "chat/chat_template.h"
#include "exchange/control_tokens.h"
#include "infer/engine.h"
#include "serve/job.h"

namespace ingot::serve {

struct ServiceOptions {
  std::string model;                   ///< the name that clients use
  std::string key;                     ///< that clients must send as bearer token; "": none
  int64_t queue = 1024;                ///< samples that are accepted and not finished; more: 429
  std::chrono::seconds deadline{600};  ///< of a request: 504
  /// Requests must name this machine as their host, so that no page of the web reaches the server through a
  /// name of its own that resolves to it.
  bool loopback = true;
};

class Service {
 public:
  /// The model must outlive it.
  Service(const Model& model, Tokenizer tokenizer, ControlTokens control,
          std::optional<chat::ChatTemplate> chat_template, EngineOptions engine, ServiceOptions options);
  ~Service();

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  /// Runs the engine until stop().
  void run();
  /// Ends run(); requests that are under way get an error.
  void stop();
  EngineStats stats() const { return engine_.stats(); }

 private:
  void route(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void check_access(const HttpRequest& request) const;
  void check_model(const std::string& name) const;
  std::optional<HttpMessage> file_of_page(const std::string& path) const;
  HttpMessage get(const std::string& path) const;
  std::string models_json() const;
  std::string tokenizer_info_json() const;
  std::string tokenize(const nlohmann::json& body) const;
  std::string detokenize(const nlohmann::json& body) const;
  void complete(const nlohmann::json& body, const HttpRequest& request,
                const std::shared_ptr<HttpReply>& reply);
  void chat(const nlohmann::json& body, const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  const chat::ChatTemplate& chat_template() const;
  std::vector<int32_t> text_ids(const std::string& text, bool begin_token) const;
  std::shared_ptr<Reasoning> reasoning_of(const ChatRequest& request, const chat::ChatTemplate& chat_template,
                                          const std::vector<int32_t>& stop_ids, uint64_t seed);
  void fit(JobOptions& options, const std::vector<JobPrompt>& prompts) const;
  void start(JobOptions options, std::vector<JobPrompt> prompts, const HttpRequest& request,
             const std::shared_ptr<HttpReply>& reply);
  void note_change(const std::shared_ptr<Job>& job);
  void write_replies();
  void end_late_jobs();

  const Tokenizer tokenizer_;
  const ControlTokens control_;
  const std::optional<chat::ChatTemplate> template_;
  const ServiceOptions options_;
  const int64_t created_;
  ServerMetrics metrics_;
  Engine engine_;

  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Job>> jobs_;     ///< under way
  std::vector<std::shared_ptr<Job>> written_;  ///< with something to write
  int64_t samples_ = 0;                        ///< of `jobs_`
  std::thread writer_;
};

}  // namespace ingot::serve
