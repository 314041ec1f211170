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
      choices_(prompts_.size() * static_cast<size_t>(options_.generation.n)),
      unfinished_(static_cast<int64_t>(choices_.size())) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].pending.choice = static_cast<int64_t>(i);
    if (options_.format) choices_[i].parser.emplace(*options_.format, options_.in_thinking, options_.tools);
  }
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

Job::Choice& Job::choice(int64_t prompt, int64_t sample) {
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
