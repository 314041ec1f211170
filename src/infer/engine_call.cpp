// See engine.h: one call of the model, and what is made of its rows.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "infer/engine_samples.h"
#include "tensor/convert.h"

namespace ingot {
namespace {

constexpr int64_t kLogits = int64_t{16} << 20;  // of scored rows that exist at a time

/// A tensor of any floating type as fp32: itself where it is.
std::span<const float> floats_of(const Tensor& t, std::vector<float>& copy) {
  if (t.dtype() == DType::f32) return {t.as<float>(), static_cast<size_t>(t.numel())};
  const std::vector<double> wide = to_doubles(t);
  copy.assign(wide.begin(), wide.end());
  return copy;
}

}  // namespace

/// Sees the experts that the layers of a call choose.
class Engine::RouteRecorder final : public TapeObserver {
 public:
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}
  void ran(const OpRun& run) override {
    if (std::string_view(run.op.name) != "route") return;
    const Tensor& ids_TK = run.call.out[1];
    const auto* ids = ids_TK.as<int32_t>();
    top_k_ = ids_TK.dim(1);
    layers_.emplace_back(ids, ids + ids_TK.numel());
  }
  /// Appends the routes of a row.
  void add_row(int64_t row, std::vector<uint16_t>& to) const {
    for (const auto& ids : layers_)
      for (int64_t k = 0; k < top_k_; ++k)
        to.push_back(static_cast<uint16_t>(ids[static_cast<size_t>(row * top_k_ + k)]));
  }

 private:
  std::vector<std::vector<int32_t>> layers_;
  int64_t top_k_ = 0;
};

void Engine::note_routes(const Member& m, const RouteRecorder& recorder) {
  Sample& s = *samples_[m.sample];
  if (!s.asked().report.routes) return;
  for (int64_t i = std::max<int64_t>(0, s.routed - m.past); i < m.rows; ++i, ++s.routed) {
    s.last_routes.clear();
    recorder.add_row(m.first_row + i, s.last_routes);
    if (m.past + i + 1 < s.prompt_tokens())
      s.routes.insert(s.routes.end(), s.last_routes.begin(), s.last_routes.end());
  }
}

/// Rows of x as one tensor: a slice of x if they are consecutive, else a copy that lives until the next call.
Tensor Engine::gather(const Tensor& x, std::span<const int64_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  if (rows.back() - rows.front() == count - 1) return x.slice(rows.front(), rows.front() + count);
  const int64_t bytes = x.dim(1) * size_of(x.dtype());
  gathered_.resize(static_cast<size_t>(count * bytes));
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(gathered_.data() + static_cast<int64_t>(i) * bytes,
                static_cast<const std::byte*>(x.data) + rows[i] * bytes, static_cast<size_t>(bytes));
  return Tensor(gathered_.data(), {count, x.dim(1)}, x.dtype());
}

void Engine::forward(Call& call) {
  for (Member& m : call.members) {
    Sample& s = *samples_[m.sample];
    m.first_row = call.rows.count, m.past = s.state->tokens();
    call.rows.spans.push_back({m.first_row, m.rows, m.past, &*s.state});
    call.rows.count += m.rows;
    for (int64_t i = 0; i < m.rows; ++i) call.positions.push_back(static_cast<int32_t>(m.past + i));
    const auto first = s.ids.begin() + m.past;
    call.ids.insert(call.ids.end(), first, first + m.rows);
  }
  RouteRecorder recorder;
  const bool routes = std::any_of(call.members.begin(), call.members.end(),
                                  [&](const Member& m) { return samples_[m.sample]->asked().report.routes; });
  Tape tape(arena_, {.record = false, .observer = routes ? &recorder : nullptr, .profile = profile_});
  Context c{tape, model_.weights(), &call.rows,
            tape.leaf(Tensor::of(call.positions.data(), {call.rows.count}))};
  c.absorb_latents = options_.latents == LatentDecoding::absorbed;
  model_.equip(c);
  const Value hidden_TD =
      model_.decoder().forward(c, tape.leaf(Tensor::of(call.ids.data(), {call.rows.count}))).hidden_TD;
  ++counts_.calls, counts_.computed_rows += call.rows.count;
  for (const Member& m : call.members) {
    Sample& s = *samples_[m.sample];
    s.own_rows += m.rows;
    note_routes(m, recorder);
    keep_pages(s);
  }
  score_prompts(call, c, hidden_TD);
  draw(call, c, hidden_TD);
}

/// Log-probabilities of the prompt's tokens whose preceding rows the call has.
void Engine::score_prompts(Call& call, Context& c, const Value& hidden_TD) {
  const int64_t at_once = std::max<int64_t>(1, kLogits / model_.config().head_rows());
  for (const Member& m : call.members) {
    Sample& s = *samples_[m.sample];
    if (s.scored) continue;
    const int64_t last = std::min(m.past + m.rows, s.prompt_tokens() - 1);
    for (int64_t p = std::max(m.past, s.score_from() - 1); p < last; p += at_once) {
      const int64_t count = std::min(at_once, last - p), row = m.first_row + p - m.past;
      const Value rows_SD = c.tape.leaf(hidden_TD.tensor().slice(row, row + count));
      const Tensor targets = Tensor::of(s.ids.data() + p + 1, {count});
      std::vector<float> copy;
      if (s.asked().report.top == 0) {
        const HeadResult h =
            model_.decoder().head(c, {.mode = HeadMode::recompute}, rows_SD, c.tape.leaf(targets));
        const auto logprobs = floats_of(h.logprob_T.tensor(), copy);
        s.logprobs.insert(s.logprobs.end(), logprobs.begin(), logprobs.end());
        continue;
      }
      const Value logits_SV = model_.decoder().logits(c, rows_SD);
      const auto logits = floats_of(logits_SV.tensor(), copy);
      const auto width = static_cast<size_t>(logits_SV.tensor().dim(1));
      std::vector<RowDraw> draws(static_cast<size_t>(count));
      std::vector<DrawnToken> drawn(draws.size());
      for (size_t i = 0; i < draws.size(); ++i) {
        draws[i].logits = logits.subspan(i * width, width), draws[i].vocab = drawn_vocab_;
        draws[i].sampling.temperature = 0, draws[i].top = s.asked().report.top;
        draws[i].chosen = s.ids[static_cast<size_t>(p + 1) + i];
      }
      draw_tokens(draws, drawn);
      for (DrawnToken& d : drawn) {
        if (d.error) return finish(s, FinishReason::failed, &*d.error);
        s.logprobs.push_back(d.logprob), s.tops.push_back(std::move(d.top));
      }
    }
  }
  for (const Member& m : call.members) {
    Sample& s = *samples_[m.sample];
    if (s.done || s.pending() > 0 || s.output() > 0) continue;
    if (!s.scored) send_scores(s);
    if (!s.done && s.asked().max_tokens == 0) finish(s, FinishReason::max_tokens);
  }
}

void Engine::send_scores(Sample& s) {
  s.scored = true;
  const auto bad =
      std::find_if(s.logprobs.begin(), s.logprobs.end(), [](float x) { return !std::isfinite(x); });
  if (bad != s.logprobs.end()) {
    const Error error(
        fmt::format("the log-probability of the prompt's token {} is {}",
                    std::max<int64_t>(1, s.asked().report.prompt_from) + (bad - s.logprobs.begin()), *bad),
        "the weights have diverged or overflow in this precision: give an older checkpoint, or --weights "
        "f32");
    return finish(s, FinishReason::failed, &error);
  }
  PromptScores scores;
  scores.request = s.request->id;
  scores.from = std::max<int64_t>(1, s.asked().report.prompt_from);
  scores.logprob = s.logprobs, scores.top = s.tops, scores.routes = s.routes;
  if (s.request->sink.prompt) s.request->sink.prompt(scores);
}

/// The next token of every sample whose known tokens are all computed.
void Engine::draw(Call& call, Context& c, const Value& hidden_TD) {
  std::vector<int64_t> rows;
  std::vector<size_t> row_of_draw;
  std::vector<Sample*> who;
  std::vector<RowDraw> draws;
  Samples forks;
  const auto add = [&](Sample& s) {
    RowDraw d;
    d.vocab = drawn_vocab_;
    d.sampling = s.asked().sampling;
    d.stream = sampling_stream(s.asked().key, s.number), d.position = static_cast<uint64_t>(s.tokens());
    d.top = s.asked().report.top, d.kept = s.asked().report.kept;
    d.chosen = s.thinking.forced();
    draws.push_back(d), who.push_back(&s), row_of_draw.push_back(rows.size() - 1);
  };
  for (const Member& m : call.members) {
    Sample& s = *samples_[m.sample];
    if (s.done || s.pending() > 0) continue;
    rows.push_back(m.first_row + m.rows - 1);
    add(s);
    for (int64_t i = 1; i < s.asked().n && !s.forked; ++i) add(*forks.emplace_back(s.fork(i, tokenizer_)));
    s.forked = true;
  }
  if (rows.empty()) return;
  const Value logits_SV = model_.decoder().logits(c, c.tape.leaf(gather(hidden_TD.tensor(), rows)));
  const auto width = static_cast<size_t>(logits_SV.tensor().dim(1));
  std::vector<float> copy;
  const auto logits = floats_of(logits_SV.tensor(), copy);
  for (size_t i = 0; i < draws.size(); ++i) draws[i].logits = logits.subspan(row_of_draw[i] * width, width);
  drawn_.resize(draws.size());
  draw_tokens(draws, drawn_);
  for (size_t i = 0; i < draws.size(); ++i) accept(*who[i], drawn_[i]);
  if (forks.empty()) return;
  std::move(forks.begin(), forks.end(), std::back_inserter(samples_));
  std::stable_sort(samples_.begin(), samples_.end(), [](const auto& a, const auto& b) {
    return std::pair(a->request->id, a->number) < std::pair(b->request->id, b->number);
  });
}

/// Reports a sample's next token, and ends the sample where it ends.
void Engine::accept(Sample& s, const DrawnToken& drawn) {
  if (drawn.error) return finish(s, FinishReason::failed, &*drawn.error);
  const Request& r = s.asked();
  TokenEvent e;
  e.request = s.request->id, e.sample = s.number, e.position = s.tokens(), e.id = drawn.id;
  e.logprob = drawn.logprob, e.sampled_logprob = drawn.sampled_logprob;
  e.top = drawn.top, e.kept = drawn.kept, e.routes = s.last_routes, e.weights = weights_;
  e.forced = s.thinking.forced().has_value();
  e.stop = !e.forced && std::find(r.stop_ids.begin(), r.stop_ids.end(), e.id) != r.stop_ids.end();
  bool budget_left = true;
  if (!e.stop) {
    budget_left = s.thinking.push(e.id);
    e.thinking = s.thinking.inside();
    s.ids.push_back(e.id);
    if (tokenizer_ && e.id < tokenizer_->vocab_size())
      e.bytes = tokenizer_->token_bytes(e.id), e.text = s.text->push(e.id);
  }
  ++counts_.output_tokens, ++s.usage.output_tokens;
  s.usage.forced_tokens += e.forced ? 1 : 0;
  s.usage.thinking_tokens += e.thinking ? 1 : 0;
  if (s.request->sink.token) s.request->sink.token(e);
  if (e.stop) return finish(s, FinishReason::stop_id);
  if (s.text && s.text->stopped()) return finish(s, FinishReason::stop_string);
  if (s.output() >= r.max_tokens || !budget_left) return finish(s, FinishReason::max_tokens);
  if (s.tokens() > model_.config().context) return finish(s, FinishReason::context);
}

}  // namespace ingot
