// One request of a client on its way through the engine: its prompts' samples are collected and written to
// the reply, whole at the end or as events while they come.
//
// The engine's thread appends (sinks); the service's writer thread writes (flush), so that no JSON is made
// between two calls of the model; the server's threads begin a job and report a lost client. A lock guards
// what they share. A job that reasons submits a round of requests when the one before is finished, and writes
// its answer at the end.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "chat/reply_parser.h"
#include "infer/engine.h"
#include "reason/markovian_rsa.h"
#include "serve/metrics_text.h"
#include "serve/openai_reply.h"
#include "serve/openai_request.h"

namespace ingot::serve {

using Clock = std::chrono::steady_clock;

/// A prompt and how its samples are drawn.
struct JobPrompt {
  std::vector<int32_t> ids;
  std::string text;  ///< where it is echoed
  uint64_t seed = 0;
};

/// Many rollouts in rounds, of which one becomes the answer: the first that says what most say.
struct Reasoning {
  reason::Reasoner reasoner;
  std::optional<reason::RsaRun> run;
  int64_t population = 0;
};

struct JobOptions {
  Generation generation;
  bool chat = false, echo = false;
  std::vector<int32_t> stop_ids;
  std::vector<std::string> stop_strings;
  ThinkingBudget thinking;
  std::string tools;                        ///< chat: that the model may call
  std::optional<chat::ReplyFormat> format;  ///< chat: how replies are read
  bool in_thinking = false;                 ///< chat: they begin inside the reasoning
  int64_t max_tokens = 0;
  std::shared_ptr<Reasoning> reasoning;  ///< chat: instead of the prompt's own samples
};

class Job : public std::enable_shared_from_this<Job> {
 public:
  /// `held` lives as long as the job. `changed` is called, from any thread, when there is something to write.
  Job(Engine& engine, ServerMetrics& metrics, ReplyWriter writer, JobOptions options,
      std::vector<JobPrompt> prompts, std::shared_ptr<HttpReply> reply, std::shared_ptr<void> held,
      std::function<void(const std::shared_ptr<Job>&)> changed);

  /// Submits all prompts. Throws what the engine refuses, after it has taken back those before.
  void submit();
  /// True for the first change since flush().
  bool note_change() { return !noted_.exchange(true); }
  /// Writes what has come since the last time. True: the reply is complete, or its client lost.
  bool flush();
  /// Ends the job with an error, unless it is complete. Any thread.
  void fail(const ApiError& error);
  Clock::time_point began() const { return began_; }
  int64_t samples() const { return samples_; }

 private:
  struct Choice {
    Addition pending;
    std::optional<chat::ReplyParser> parser;
    std::string unread;  ///< chat: text that the parser has not seen
    bool begun = false, spoken = false, finished = false, written = false;
    FinishReason reason = FinishReason::max_tokens;
    int64_t calls = 0;
    Clock::time_point last_token;
  };

  Request request_of(const JobPrompt& prompt) const;
  Sink sink_of(int64_t prompt);
  void on_prompt(int64_t prompt, const PromptScores& scores);
  void on_token(int64_t prompt, const TokenEvent& event);
  void on_finished(int64_t prompt, const Finished& finished);
  void submit_round(std::vector<Request> requests);
  void end_round();
  void begin(Choice& choice, const JobPrompt& prompt);
  void read_reply(Choice& choice);
  void cancel();
  bool write_stream();
  bool write_whole();
  Choice& choice(int64_t prompt, int64_t sample);

  Engine& engine_;
  ServerMetrics& metrics_;
  const ReplyWriter writer_;
  const JobOptions options_;
  const std::vector<JobPrompt> prompts_;
  const std::shared_ptr<HttpReply> reply_;
  const std::shared_ptr<void> held_;
  const std::function<void(const std::shared_ptr<Job>&)> changed_;
  const Clock::time_point began_ = Clock::now();
  const int64_t samples_;
  std::atomic<bool> noted_{false};

  std::mutex mutex_;  ///< of what follows
  std::vector<Choice> choices_;
  std::vector<RequestId> requests_;
  UsageTotals usage_;
  int64_t unfinished_ = 0;
  bool between_rounds_ = false;  ///< a job that reasons has nothing to write yet
  bool streaming_ = false, complete_ = false;
  std::optional<ApiError> error_;
};

}  // namespace ingot::serve
