// See rollout_sampler.h.
#include "post/rl/rollout_sampler.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "infer/engine.h"
#include "post/rl/canary.h"

namespace ingot {
namespace {

/// Whether every environment of the groups may judge from several threads.
bool judges_in_parallel(const std::vector<RolloutGroup>& groups) {
  return std::all_of(groups.begin(), groups.end(), [](const RolloutGroup& g) {
    return environments::find_environment(g.problem.environment)->thread_safe();
  });
}

/// The engine's ids, whose skip class is 0xFFFF.
void add_routes(std::span<const uint16_t> experts, std::vector<uint8_t>& routes) {
  for (const uint16_t id : experts) {
    INGOT_CHECK(id < kMostReplayedExperts || id == 0xFFFF, "expert {} is kept in a byte", id);
    routes.push_back(static_cast<uint8_t>(id));
  }
}

}  // namespace

std::optional<bool> thinking_switch(RolloutThinking how, int64_t ordinal) {
  switch (how) {
    case RolloutThinking::any:
      break;
    case RolloutThinking::on:
    case RolloutThinking::off:
      return how == RolloutThinking::on;
    case RolloutThinking::mixed:
      return ordinal % 2 == 0;
  }
  return std::nullopt;
}

void zero_repetition(Rollout& r, double threshold, int64_t chunk) {
  if (threshold <= 0) return;
  r.compression = least_compression_ratio(r.ids, chunk);
  if (r.compression >= threshold) return;
  if (r.reward > 0) r.note = "repetition: the reward is 0";
  r.reward = std::min(r.reward, 0.0);
}

RolloutSampler::RolloutSampler(const Model& model, const Tokenizer& tokenizer,
                               const chat::ChatTemplate& chat_template, const RolloutOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      template_(chat_template),
      options_(options),
      format_(chat_template.reply_format()) {
  chat::require_tokens(template_, tokenizer_);
  stop_ids_ = chat::end_ids(template_, tokenizer_);
  if (const auto eos = tokenizer_.roles().eos;
      eos && std::find(stop_ids_.begin(), stop_ids_.end(), *eos) == stop_ids_.end())
    stop_ids_.push_back(*eos);
  if (format_.think_close.empty() && (options_.thinking_tokens >= 0 || options_.answer_tokens >= 0))
    throw Error(
        "rl: thinking_tokens and answer_tokens need a chat template with reasoning, and this one has none",
        "leave them out, or choose another template");
}

void RolloutSampler::ask(RolloutGroup& group, std::optional<bool> thinking) const {
  chat::RenderOptions render{.add_generation_prompt = true};
  if (thinking && template_.knows_thinking()) render.enable_thinking = *thinking;
  const chat::Rendered rendered = template_.render(group.problem.prompt, render);
  group.thinking = render.enable_thinking;
  group.asks_thinking = thinking.value_or(true) && !format_.think_close.empty();
  set_prompt(group, template_.encode(rendered, tokenizer_).ids, rendered.ends_in_thinking);
}

void RolloutSampler::set_prompt(RolloutGroup& group, std::vector<int32_t> ids, bool ends_in_thinking) const {
  group.prompt = std::move(ids);
  group.opens_thinking = ends_in_thinking;
  const auto prompt = static_cast<int64_t>(group.prompt.size());
  if (const int64_t needed = prompt + options_.max_tokens; needed > options_.positions)
    throw Error(
        fmt::format(
            "rl: the prompt of problem '{}' has {} tokens; with a reply of {} it needs {} positions, a "
            "row has {}",
            group.problem.id(), prompt, options_.max_tokens, needed, options_.positions),
        "raise the phase's sequence (and the model's context), lower rl.max_tokens, or bound the difficulty");
}

void RolloutSampler::sample(std::vector<RolloutGroup>& groups, RolloutCost& cost) const {
  const double begin = monotonic_seconds();
  draw(groups);
  const double middle = monotonic_seconds();
  std::vector<std::pair<RolloutGroup*, Rollout*>> replies;
  for (RolloutGroup& g : groups)
    for (Rollout& r : g.rollouts) replies.emplace_back(&g, &r);
  const auto judge_range = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      judge(*replies[static_cast<size_t>(i)].first, *replies[static_cast<size_t>(i)].second);
  };
  const auto count = static_cast<int64_t>(replies.size());
  if (judges_in_parallel(groups))
    parallel_for(count, 4, judge_range);
  else
    judge_range(0, count);
  cost.sample_seconds += middle - begin;
  cost.judge_seconds += monotonic_seconds() - middle;
}

void RolloutSampler::draw(std::vector<RolloutGroup>& groups) const {
  // A new engine: no page of earlier weights lives on, and all memory of pages is free again in training.
  Engine engine(model_, tokenizer_, {.cache_bytes = options_.cache_bytes});
  std::string error;
  for (RolloutGroup& g : groups) {
    g.rollouts.assign(static_cast<size_t>(options_.samples), {});
    Request q;
    q.prompt = g.prompt;
    q.sampling = options_.sampling;
    q.key = g.key;
    q.n = options_.samples;
    q.max_tokens = options_.max_tokens;
    q.stop_ids = stop_ids_;
    if (!format_.think_close.empty()) {
      q.thinking = thinking_budget(format_, tokenizer_, options_.thinking_tokens, g.opens_thinking);
      q.thinking.answer_tokens = options_.answer_tokens;
    }
    q.report.routes = options_.routes;
    q.report.kept = q.sampling.filters();
    Sink sink;
    sink.prompt = [&g](const PromptScores& p) { add_routes(p.routes, g.routes); };
    sink.token = [&g, keeps = q.report.kept](const TokenEvent& e) {
      Rollout& r = g.rollouts[static_cast<size_t>(e.sample)];
      r.ids.push_back(e.id);
      r.recorded.push_back(e.sampled_logprob);
      if (keeps && !e.forced) r.kept.insert(r.kept.end(), e.kept.begin(), e.kept.end());
      if (keeps) r.kept_counts.push_back(e.forced ? 0 : static_cast<int32_t>(e.kept.size()));
      r.forced.push_back(e.forced);
      add_routes(e.routes, r.routes);
      r.text += e.text;
      r.thinking_tokens += e.thinking ? 1 : 0;
      r.weights = e.weights;
    };
    sink.finished = [&g, &error](const Finished& f) {
      Rollout& r = g.rollouts[static_cast<size_t>(f.sample)];
      r.text += f.text;
      r.finish = f.reason;
      if (!f.error.empty()) error = f.error;
    };
    engine.submit(std::move(q), std::move(sink));
  }
  engine.run_until_idle();
  if (!error.empty()) throw Error("rl: a reply could not be drawn: " + error);
}

void RolloutSampler::judge(RolloutGroup& group, Rollout& r) const {
  const chat::Message reply = chat::parse_reply(format_, r.text, group.opens_thinking);
  const environments::Verdict v =
      environments::find_environment(group.problem.environment)->judge(group.problem, reply);
  r.reward = v.reward, r.parts = v.parts, r.answer = v.answer, r.note = v.note, r.left_out = v.infrastructure;
  zero_repetition(r, options_.repetition, options_.repetition_chunk);
}

}  // namespace ingot
