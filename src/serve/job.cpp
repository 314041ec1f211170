// See job.h.
#include "serve/job.h"

#include <utility>

#include "base/error.h"

namespace ingot::serve {
namespace {

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

}  // namespace

Job::Job(Engine& engine, ServerMetrics& metrics, ReplyWriter writer, JobOptions options,
         std::vector<JobPrompt> prompts, std::shared_ptr<HttpReply> reply, std::shared_ptr<void> held,
         std::function<void(const std::shared_ptr<Job>&)> changed)
    : engine_(engine),
      metrics_(metrics),
      writer_(std::move(writer)),
      options_(std::move(options)),
      prompts_(std::move(prompts)),
      reply_(std::move(reply)),
      held_(std::move(held)),
      changed_(std::move(changed)),
      samples_(options_.reasoning ? options_.reasoning->population
                                  : static_cast<int64_t>(prompts_.size()) * options_.generation.n),
      choices_(static_cast<size_t>(samples_)),
      unfinished_(samples_),
      between_rounds_(options_.reasoning != nullptr) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].pending.choice = static_cast<int64_t>(i);
    if (options_.format) choices_[i].parser.emplace(*options_.format, options_.in_thinking, options_.tools);
  }
  if (!options_.reasoning)
    for (const JobPrompt& p : prompts_) usage_.prompt += static_cast<int64_t>(p.ids.size());
}

Request Job::request_of(const JobPrompt& prompt) const {
  const Generation& g = options_.generation;
  Request r;
  r.prompt = prompt.ids;
  r.sampling = g.sampling;
  r.sampling.seed = prompt.seed;
  r.n = g.n;
  r.max_tokens = options_.max_tokens;
  r.stop_ids = options_.stop_ids;
  r.stop_strings = options_.stop_strings;
  r.thinking = options_.thinking;
  if (g.top >= 0) r.report.top = g.top;
  if (options_.echo && g.top >= 0) r.report.prompt_from = 0;
  return r;
}

Sink Job::sink_of(int64_t prompt) {
  // Sinks must not throw. What fails here (memory) ends the job and nothing else.
  const auto guarded = [self = shared_from_this(), prompt](auto member, const auto& event) {
    try {
      ((*self).*member)(prompt, event);
    } catch (const std::exception& e) {
      self->fail(ApiError(e.what(), 500));
    }
    self->changed_(self);
  };
  Sink sink;
  sink.prompt = [guarded](const PromptScores& e) { guarded(&Job::on_prompt, e); };
  sink.token = [guarded](const TokenEvent& e) { guarded(&Job::on_token, e); };
  sink.finished = [guarded](const Finished& e) { guarded(&Job::on_finished, e); };
  return sink;
}

void Job::submit() {
  reply_->when_lost([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->fail(ApiError("the client is lost", 499));
  });
  try {
    if (options_.reasoning) {
      std::vector<Request> requests = options_.reasoning->run->next();
      const std::lock_guard lock(mutex_);
      return submit_round(std::move(requests));
    }
    for (size_t p = 0; p < prompts_.size(); ++p) {
      const RequestId id = engine_.submit(request_of(prompts_[p]), sink_of(static_cast<int64_t>(p)));
      const std::lock_guard lock(mutex_);
      requests_.push_back(id);
      if (complete_) engine_.cancel(id);
    }
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    complete_ = true;  // the caller answers
    cancel();
    throw;
  }
}

/// Under the lock.
void Job::submit_round(std::vector<Request> requests) {
  requests_.clear();
  for (Request& r : requests) {
    usage_.prompt += static_cast<int64_t>(r.prompt.size()) * r.n;
    requests_.push_back(engine_.submit(std::move(r), sink_of(0)));
  }
  if (complete_) cancel();
}

/// Under the lock, when all samples of a round are there: the next round, or one choice out of the last.
void Job::end_round() {
  std::vector<Request> requests = options_.reasoning->run->next();
  if (requests.empty()) {
    const size_t best = reason::most_common_answer(options_.reasoning->run->result().last());
    std::vector<Choice> chosen;
    chosen.push_back(std::move(choices_[best]));
    chosen[0].pending.choice = 0;
    choices_ = std::move(chosen);
    between_rounds_ = false;
    return;
  }
  std::vector<Choice> fresh(choices_.size());
  for (Choice& c : fresh) c.parser.emplace(*options_.format, options_.in_thinking, options_.tools);
  choices_ = std::move(fresh);
  unfinished_ = samples_;
  submit_round(std::move(requests));
}

Job::Choice& Job::choice(int64_t prompt, int64_t sample) {
  if (options_.reasoning) return choices_[static_cast<size_t>(sample)];
  return choices_[static_cast<size_t>(prompt * options_.generation.n + sample)];
}

/// Under the lock: what a choice has before its first token.
void Job::begin(Choice& c, const JobPrompt& prompt) {
  if (std::exchange(c.begun, true)) return;
  if (options_.echo) c.pending.text = prompt.text;
  if (options_.generation.token_ids) c.pending.prompt = prompt.ids;
}

void Job::on_prompt(int64_t prompt, const PromptScores& scores) {
  const std::lock_guard lock(mutex_);
  if (complete_) return;
  const JobPrompt& p = prompts_[static_cast<size_t>(prompt)];
  std::vector<ReportedToken> tokens;
  for (size_t i = 0; i < p.ids.size(); ++i) {
    ReportedToken t{p.ids[i], std::nullopt, {}, false};
    if (const auto from = static_cast<size_t>(scores.from); i >= from) {
      t.logprob = scores.logprob[i - from];
      if (!scores.top.empty()) t.top = scores.top[i - from];
    }
    tokens.push_back(std::move(t));
  }
  for (int64_t s = 0; s < options_.generation.n; ++s) choice(prompt, s).pending.tokens = tokens;
}

void Job::on_token(int64_t prompt, const TokenEvent& e) {
  const std::lock_guard lock(mutex_);
  if (complete_) return;
  if (options_.reasoning) options_.reasoning->run->token(e);
  Choice& c = choice(prompt, e.sample);
  const bool first = !c.begun;
  begin(c, prompts_[static_cast<size_t>(prompt)]);
  first ? metrics_.first_token(seconds_since(began_)) : metrics_.next_token(seconds_since(c.last_token));
  c.last_token = Clock::now();
  (options_.format ? c.unread : c.pending.text) += e.text;
  const Generation& g = options_.generation;
  if ((g.top < 0 && !g.token_ids) || (options_.chat && e.stop)) return;
  c.pending.tokens.push_back({e.id, e.logprob, {e.top.begin(), e.top.end()}, e.stop});
}

void Job::on_finished(int64_t prompt, const Finished& f) {
  metrics_.finished(f.reason, seconds_since(began_));
  const std::lock_guard lock(mutex_);
  if (complete_) return;
  if (options_.reasoning) options_.reasoning->run->finished(f);
  Choice& c = choice(prompt, f.sample);
  begin(c, prompts_[static_cast<size_t>(prompt)]);
  (options_.format ? c.unread : c.pending.text) += f.text;
  c.finished = true;
  c.reason = f.reason;
  usage_.output += f.usage.output_tokens;
  usage_.reasoning += f.usage.thinking_tokens;
  if (f.sample == 0) usage_.cached += f.usage.cached_tokens;
  --unfinished_;
  if (f.reason == FinishReason::failed && !error_) error_ = ApiError(f.error, 500);
  if (f.reason == FinishReason::cancelled && !error_) error_ = ApiError("the request was cancelled", 503);
  if (options_.reasoning && unfinished_ == 0 && !error_) end_round();
}

/// Under the lock: moves text that has come through the parser of replies.
void Job::read_reply(Choice& c) {
  if (!c.parser) return;
  const auto take = [&](std::vector<chat::ReplyPiece> pieces) {
    for (chat::ReplyPiece& piece : pieces) switch (piece.kind) {
        case chat::ReplyPiece::Kind::reasoning:
          c.pending.reasoning += piece.text;
          break;
        case chat::ReplyPiece::Kind::content:
          c.pending.text += piece.text;
          break;
        case chat::ReplyPiece::Kind::tool_call:
          if (c.pending.calls.empty()) c.pending.first_call = c.calls;
          ++c.calls;
          piece.call.id = "call_" + random_name();
          c.pending.calls.push_back(std::move(piece.call));
          break;
      }
  };
  take(c.parser->push(std::exchange(c.unread, {})));
  if (c.finished) take(c.parser->finish());
}

bool Job::flush() {
  noted_ = false;
  const std::lock_guard lock(mutex_);
  if (complete_) return true;
  if (between_rounds_ && !error_) return false;
  try {
    for (Choice& c : choices_) {
      if (c.written) continue;
      read_reply(c);
      if (c.finished)
        c.pending.finish = c.calls > 0 ? "tool_calls"
                           : c.reason == FinishReason::stop_id || c.reason == FinishReason::stop_string
                               ? "stop"
                               : "length";
    }
    if (!error_) return options_.generation.stream ? write_stream() : write_whole();
  } catch (const std::exception& e) {
    error_ = ApiError(e.what(), 500);
  }
  complete_ = true;
  cancel();
  if (!streaming_) {
    reply_->send(error_message(*error_));
  } else {
    reply_->write(ReplyWriter::error_event(*error_));
    reply_->end();
  }
  return true;
}

/// Under the lock: events for whatever is new. True: the stream has ended, or its client is lost.
bool Job::write_stream() {
  std::string out;
  for (Choice& c : choices_) {
    if (!c.begun || c.written) continue;
    Addition& a = c.pending;
    if (a.text.empty() && a.reasoning.empty() && a.calls.empty() && a.tokens.empty() && !a.finish) continue;
    if (!std::exchange(c.spoken, true)) out += writer_.begin_event(a.choice);
    out += writer_.event(a);
    c.written = a.finish != nullptr;
    writer_.advance(a);
  }
  if (unfinished_ == 0) {
    if (options_.generation.include_usage) out += writer_.usage_event(usage_);
    out += ReplyWriter::done_event();
  }
  if (out.empty()) return false;
  if (!std::exchange(streaming_, true)) reply_->begin_stream("text/event-stream; charset=utf-8");
  const bool there = reply_->write(std::move(out));
  if (unfinished_ == 0) reply_->end();
  complete_ = unfinished_ == 0 || !there;
  if (!there) cancel();
  return complete_;
}

bool Job::write_whole() {
  if (unfinished_ > 0) return false;
  complete_ = true;
  std::vector<Addition> all;
  for (Choice& c : choices_) all.push_back(std::move(c.pending));
  reply_->send({200, "application/json", writer_.whole(all, usage_), {}});
  return true;
}

void Job::fail(const ApiError& error) {
  {
    const std::lock_guard lock(mutex_);
    if (complete_ || error_) return;
    error_ = error;
    cancel();
  }
  changed_(shared_from_this());
}

/// Under the lock.
void Job::cancel() {
  for (const RequestId id : requests_) engine_.cancel(id);
}

}  // namespace ingot::serve
