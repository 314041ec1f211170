// See engine.h: requests and their samples, the loop, and what is reported.
#include "infer/engine.h"

#include <algorithm>
#include <utility>

#include "infer/engine_samples.h"
#include "infer/schedule.h"

namespace ingot {
namespace {

int64_t page_limit_of(const Model& model, const EngineOptions& o) {
  if (o.max_pages > 0) return o.max_pages;
  const int64_t context = SequenceStore::pages_for(model.config().context) + 1;
  const int64_t page = SequenceStore(sequence_layout(model), 0).page_bytes();
  if (o.cache_bytes > 0) return std::max<int64_t>(1, o.cache_bytes / page);
  return std::max(context, std::min(8 * context, (int64_t{2} << 30) / page));
}

}  // namespace

SequenceLayout sequence_layout(const Model& model) {
  const ModelConfig& m = model.config();
  SequenceLayout l;
  l.layers = m.cache_layer(m.layers);
  l.kv_heads = m.is_mla() ? 1 : m.kv_heads;
  l.head_width = m.is_mla() ? m.cache_width() : m.key_width();
  if (m.is_mla()) l.value_width = 0;  // the latent and the rotated key are one row
  l.dtype = model.weights().precision().compute;
  if (m.attention == AttentionKind::cca) {
    l.conv_channels = (m.heads + m.kv_heads) * m.key_width();
    l.delayed_channels = m.kv_heads * m.key_width() / 2;
  }
  return l;
}

Engine::Engine(const Model& model, std::optional<Tokenizer> tokenizer, EngineOptions options)
    : model_(model),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      drawn_vocab_(model.config().vocab),
      store_(sequence_layout(model), page_limit_of(model, options)) {
  const ModelConfig& m = model.config();
  if (options_.token_budget < 1)
    fail("the engine's token budget is {} rows per call, expected at least 1", options_.token_budget);
  if (m.moe.experts > 0 && m.moe.selection == AssignRule::expert_choice)
    throw Error("a model whose experts choose their tokens cannot decode token by token",
                "score whole texts instead");
  const int64_t known = options_.vocab > 0 ? options_.vocab : tokenizer_ ? tokenizer_->vocab_size() : m.vocab;
  drawn_vocab_ = std::min(m.vocab, known);
  weights_ = model_.weights().version();
  publish();
}

Engine::~Engine() = default;

void Engine::check(const Request& r) const {
  const ModelConfig& m = model_.config();
  const auto count = static_cast<int64_t>(r.prompt.size());
  if (r.prompt.empty()) throw Error("the prompt is empty", "give at least one token");
  for (size_t i = 0; i < r.prompt.size(); ++i)
    if (r.prompt[i] < 0 || r.prompt[i] >= m.vocab)
      fail("token {} of the prompt is {}, expected an id from 0 to {}", i, r.prompt[i], m.vocab - 1);
  if (count > m.context)
    throw Error(fmt::format("the prompt has {} tokens, but the model's context is {}", count, m.context),
                "give a shorter prompt");
  const int64_t longest =
      std::min(count + std::min(std::max<int64_t>(r.max_tokens, 0), m.context), m.context);
  if (const int64_t pages = SequenceStore::pages_for(longest); pages > store_.page_limit())
    throw Error(
        fmt::format("{} tokens of prompt and answer take {} pages of the sequence cache, which has {}",
                    longest, pages, store_.page_limit()),
        "ask for fewer tokens, or raise the memory of the cache");
  validate(r.sampling);
  validate(r.thinking);
  if (r.n < 1 || r.n > kMaxSamples || r.first_sample < 0)
    fail("{} samples from number {}, expected 1 to {} from 0", r.n, r.first_sample, kMaxSamples);
  if (r.max_tokens < 0) fail("at most {} new tokens, expected 0 or more", r.max_tokens);
  if (r.report.top < 0) fail("the {} most likely tokens, expected 0 or more", r.report.top);
  if (r.report.prompt_from < -1 || r.report.prompt_from > count)
    fail("log-probabilities of the prompt from token {} of {}", r.report.prompt_from, count);
  if (r.report.routes && m.moe.experts == 0)
    throw Error("routes are asked for, but the model has no experts", "leave routes out of the report");
  if (!r.stop_strings.empty() && !tokenizer_)
    throw Error("stop strings need a tokenizer, and the engine has none", "give stop ids instead");
  const StopStrings valid(r.stop_strings);
}

RequestId Engine::submit(Request request, Sink sink) {
  check(request);
  auto state = std::make_shared<RequestState>();
  state->request = std::move(request);
  state->sink = std::move(sink);
  state->left = state->request.max_tokens == 0 ? 1 : state->request.n;
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = state->id = next_id_++;
    inbox_.push_back(std::move(state));
  }
  arrived_.notify_one();
  return id;
}

void Engine::cancel(RequestId request) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(request);
  }
  arrived_.notify_one();
}

bool Engine::wait_for_work(std::chrono::milliseconds longest) {
  if (!samples_.empty()) return true;
  std::unique_lock lock(mutex_);
  return arrived_.wait_for(lock, longest, [&] { return !inbox_.empty() || !cancelled_.empty(); });
}

void Engine::drop_cached_prefixes() {
  cache_.clear();
  publish();
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats s = published_;
  s.waiting += static_cast<int64_t>(inbox_.size());
  return s;
}

void Engine::publish() {
  EngineStats s = counts_;
  for (const auto& sample : samples_) (sample->begun() ? s.running : s.waiting) += 1;
  s.pages = store_.pages_in_use(), s.cached_pages = cache_.unused_pages();
  s.page_limit = store_.page_limit(), s.page_bytes = store_.page_bytes();
  s.weights = weights_;
  const std::lock_guard lock(mutex_);
  published_ = s;
}

/// Takes over what other threads have left.
void Engine::receive() {
  std::vector<std::shared_ptr<RequestState>> arrived;
  std::vector<RequestId> cancelled;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(inbox_), cancelled.swap(cancelled_);
  }
  for (auto& request : arrived) {
    counts_.prompt_tokens += static_cast<int64_t>(request->request.prompt.size());
    Sample& s = *samples_.emplace_back(std::make_unique<Sample>(std::move(request), tokenizer_));
    if (s.pending() > 0) continue;
    if (!s.scored) send_scores(s);  // of a text of one token, which has none
    finish(s, FinishReason::max_tokens);
  }
  for (const RequestId id : cancelled)
    for (const auto& s : samples_)
      if (s->request->id == id && !s->done) finish(*s, FinishReason::cancelled);
  sweep();
}

/// After an update of the weights nothing that was computed before may meet what is computed after it.
void Engine::follow_weights() {
  const uint64_t now = model_.weights().version();
  if (now == weights_) return;
  weights_ = now;
  cache_.clear();
  if (options_.on_new_weights == OnNewWeights::keep) return;
  for (auto& sample : samples_) sample->drop_state();
}

bool Engine::step() {
  receive();
  follow_weights();
  if (samples_.empty()) return publish(), false;
  Call call;
  plan(call);
  INGOT_CHECK(!call.members.empty(), "{} samples, and none can continue", samples_.size());
  try {
    forward(call);
  } catch (...) {
    for (const Member& m : call.members) samples_[m.sample]->drop_state();
    throw;
  }
  sweep();
  publish();
  return true;
}

void Engine::run_until_idle() {
  while (step()) {
  }
}

/// Gives a sample that is about to begin a state, with the pages of a known prefix.
void Engine::admit(Sample& s) {
  if (s.state) return;
  s.state.emplace(store_.create());
  s.weights = weights_;
  const int64_t usable = options_.prefix_cache ? s.reusable_tokens() : 0;
  if (usable < SequenceState::kPageTokens) return;
  const auto pages = cache_.find(std::span(s.ids).first(static_cast<size_t>(usable)));
  s.state->adopt(pages);
  s.kept_pages = static_cast<int64_t>(pages.size());
  if (s.output() > 0 || s.counted) return;
  s.counted = true;
  s.usage.cached_tokens = s.state->tokens();
  counts_.cached_tokens += s.usage.cached_tokens;
}

void Engine::preempt(Sample& s) {
  if (s.begun()) ++counts_.preemptions, ++s.usage.preemptions;
  s.drop_state();
}

/// Chooses the rows of the call; takes pages from the prefix cache, then from the youngest samples, where
/// they are short.
void Engine::plan(Call& call) {
  int64_t waiting_rows = 0;
  for (auto& s : samples_) {
    if (!s->state) {
      if (waiting_rows >= options_.token_budget) break;
      admit(*s);
    }
    if (!s->begun()) waiting_rows += s->pending();
  }
  std::vector<ScheduleItem> items(samples_.size());
  CallPlan plan;
  for (;;) {
    for (size_t i = 0; i < samples_.size(); ++i) {
      const Sample& s = *samples_[i];
      const int64_t pending = s.pending();
      if (s.state)
        items[i] = {s.state->tokens(), pending, s.state->pages_to_reserve(pending), s.state->pages(),
                    s.begun()};
      else
        items[i] = {0, pending, SequenceStore::pages_for(pending), 0, false};
    }
    const int64_t free = store_.page_limit() - store_.pages_in_use();
    plan = plan_call(items, options_.token_budget, free);
    if (plan.missing == 0 || cache_.evict(plan.missing) > 0) {
      if (plan.missing == 0) break;
      continue;
    }
    if (!plan.victim && !plan.rows.empty()) break;
    // Nobody can continue: samples that wait hold prefixes.
    if (!plan.victim)
      for (size_t i = samples_.size(); i-- > 1 && !plan.victim;)
        if (items[i].held > 0) plan.victim = i;
    if (!plan.victim) break;
    preempt(*samples_[*plan.victim]);
  }
  for (const CallPlan::Rows& rows : plan.rows) {
    Sample& s = *samples_[rows.item];
    admit(s);
    s.state->reserve(rows.count);
    call.members.push_back({rows.item, rows.count});
  }
}

/// The samples' whole pages become prefixes that others may begin with.
void Engine::keep_pages(Sample& s) {
  if (!options_.prefix_cache || s.weights != weights_) return;
  const int64_t full = s.state->tokens() / SequenceState::kPageTokens;
  if (full <= s.kept_pages) return;
  std::vector<SequenceState::Page> pages;
  for (int64_t p = 0; p < full; ++p) pages.push_back(s.state->full_page(p));
  cache_.insert(s.ids, pages);
  for (int64_t p = 0; p < full; ++p) s.state->replace_page(p, std::move(pages[static_cast<size_t>(p)]));
  s.kept_pages = full;
}

void Engine::finish(Sample& s, FinishReason reason, const Error* error) {
  s.done = true;
  s.state.reset();
  Finished f;
  f.request = s.request->id, f.reason = reason, f.usage = s.usage;
  if (s.text) f.text = s.text->finish();
  if (error != nullptr) f.error = error->what(), f.hint = error->hint();
  const int64_t samples = s.forked ? 1 : s.asked().n;  // those that the prompt's end would have made, too
  for (int64_t i = 0; i < samples; ++i) {
    ++counts_.finished;
    f.sample = s.number + i;
    f.last = --s.request->left == 0;
    if (s.request->sink.finished) s.request->sink.finished(f);
  }
}

void Engine::sweep() {
  std::erase_if(samples_, [](const auto& s) { return s->done; });
}

}  // namespace ingot
