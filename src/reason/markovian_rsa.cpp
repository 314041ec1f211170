// See markovian_rsa.h.
#include "reason/markovian_rsa.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "environments/answer.h"

namespace ingot::reason {
namespace {

constexpr int64_t kMostPopulation = kMaxSamples, kMostRounds = 1000, kMostBudget = int64_t{1} << 24;

const Tokenizer& tokenizer_of(const Reasoner& reasoner) {
  INGOT_CHECK(reasoner.engine != nullptr && reasoner.chat != nullptr && reasoner.engine->tokenizer(),
              "half a reasoner");
  return *reasoner.engine->tokenizer();
}

/// Random numbers of a round's rollouts; of round 0 those of plain samples.
uint64_t round_key(uint64_t key, int64_t round) {
  return round == 0 ? key : hash64(fmt::format("{}/{}", key, round));
}

bool begins_with(const Ids& ids, const Ids& mark) {
  return !mark.empty() && ids.size() >= mark.size() && std::equal(mark.begin(), mark.end(), ids.begin());
}
bool ends_with(const Ids& ids, const Ids& mark) {
  return !mark.empty() && ids.size() >= mark.size() && std::equal(mark.rbegin(), mark.rend(), ids.rbegin());
}

/// Where a later prompt is refused, nothing of the earlier ones may reach what is about to go.
struct CancelUnlessRun {
  Engine& engine;
  std::vector<RequestId> requests = {};
  bool run = false;
  ~CancelUnlessRun() {
    if (run) return;
    for (const RequestId id : requests) engine.cancel(id);
    engine.run_until_idle();
  }
};

}  // namespace

void validate(const RsaOptions& o) {
  const auto range = [](const char* name, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) fail("{} is {}, expected {} to {}", name, value, least, most);
  };
  range("the population", o.population, 1, kMostPopulation);
  range("the number of candidates", o.candidates, 1, o.population);
  range("the number of rounds", o.rounds, 0, kMostRounds);
  range("the budget of thinking", o.budget, 1, kMostBudget);
  range("the tail", o.tail, 1, o.budget);
  range("the budget of the answer", o.answer_tokens, 1, kMostBudget);
  ingot::validate(o.sampling);
}

int64_t RsaResult::decoded() const {
  int64_t total = 0;
  for (const RsaRound& round : rounds) total += round.decoded;
  return total;
}

std::vector<int64_t> drawn_candidates(uint64_t seed, uint64_t key, int64_t round, int64_t rollout,
                                      const RsaOptions& options) {
  if (options.candidates == 1) return {rollout};
  std::vector<int64_t> all(static_cast<size_t>(options.population));
  std::iota(all.begin(), all.end(), 0);
  const Random random(seed, RandomPurpose::sampling,
                      hash64(fmt::format("candidates {}/{}/{}", key, round, rollout)));
  for (size_t i = 0; i < static_cast<size_t>(options.candidates); ++i)
    std::swap(all[i], all[i + random.below(i, all.size() - i)]);
  all.resize(static_cast<size_t>(options.candidates));
  return all;
}

size_t most_common_answer(std::span<const Rollout> rollouts) {
  std::map<std::string, std::pair<int64_t, size_t>> votes;  // count, first
  for (size_t i = 0; i < rollouts.size(); ++i) {
    const std::string answer = environments::final_answer(rollouts[i].reply.content.value_or("")).text;
    if (!answer.empty()) ++votes.try_emplace(answer, 0, i).first->second.first;
  }
  std::pair<int64_t, size_t> best{0, 0};
  for (const auto& [answer, vote] : votes)
    if (vote.first > best.first || (vote.first == best.first && vote.second < best.second)) best = vote;
  return best.second;
}

Ids compacted(const Rollout& rollout, const RsaOptions& options, const Tokenizer& tokenizer) {
  const Ids& reasoning = rollout.reasoning.empty() ? rollout.answer : rollout.reasoning;
  switch (options.compaction) {
    case Compaction::pacore:
      return rollout.finished ? tail_of(rollout.answer, options.tail, tokenizer) : Ids{};
    case Compaction::hybrid:
      return tail_of(rollout.finished ? rollout.answer : reasoning, options.tail, tokenizer);
    default:
      return tail_of(reasoning, options.tail, tokenizer);
  }
}

RsaRun::RsaRun(const Reasoner& reasoner, ReasonProblem problem, const RsaOptions& options)
    : reasoner_(reasoner),
      problem_(std::move(problem)),
      options_(options),
      format_(reasoner.chat->reply_format()) {
  validate(options_);
}

Request RsaRun::request(const AggregatePrompt& prompt, uint64_t key, int64_t first, int64_t n) {
  Request r;
  r.prompt = prompt.ids;
  r.sampling = options_.sampling;
  r.key = key;
  r.n = n;
  r.first_sample = first;
  r.stop_ids = reasoner_.stop_ids;
  r.thinking = thinking_budget(format_, tokenizer_of(reasoner_), options_.budget, prompt.ends_in_thinking);
  r.max_tokens = options_.budget + options_.answer_tokens;
  if (!r.thinking.close.empty()) {
    r.thinking.answer_tokens = options_.answer_tokens;
    r.max_tokens += static_cast<int64_t>(r.thinking.open.size() + r.thinking.close.size());
  }
  const auto length = static_cast<int64_t>(prompt.ids.size());
  const int64_t context = reasoner_.engine->model().config().context;
  if (length + r.max_tokens > context)
    throw Error(
        fmt::format(
            "a prompt of {} tokens with {} for thinking and {} for the answer does not fit the model's "
            "context of {}",
            length, options_.budget, options_.answer_tokens, context),
        "give smaller budgets, shorter tails or fewer candidates");
  round_.prompt_tokens += length * n;
  round_.longest_prompt = std::max(round_.longest_prompt, length);
  open_ = r.thinking.open, close_ = r.thinking.close, opened_ = prompt.ends_in_thinking;
  return r;
}

void RsaRun::close_round() {
  for (Rollout& r : round_.rollouts) {
    if (!opened_ && begins_with(r.reasoning, open_))
      r.reasoning.erase(r.reasoning.begin(), r.reasoning.begin() + static_cast<std::ptrdiff_t>(open_.size()));
    if (ends_with(r.reasoning, close_)) r.reasoning.resize(r.reasoning.size() - close_.size());
    r.reply = chat::parse_reply(format_, r.text, opened_);
    round_.decoded += r.decoded;
  }
  result_.rounds.push_back(std::exchange(round_, {}));
}

std::vector<Request> RsaRun::next() {
  if (!round_.rollouts.empty()) close_round();
  const auto t = static_cast<int64_t>(result_.rounds.size());
  if (t > options_.rounds) return {};
  const Tokenizer& tokenizer = tokenizer_of(reasoner_);
  const uint64_t key = round_key(problem_.key, t);
  std::vector<Request> requests;
  if (t == 0) {
    const chat::Rendered first = reasoner_.chat->render(
        problem_.prompt, {.add_generation_prompt = true, .enable_thinking = options_.enable_thinking});
    requests.push_back(request({reasoner_.chat->encode(first, tokenizer).ids, first.ends_in_thinking}, key, 0,
                               options_.population));
  } else {
    std::vector<Ids> tails;
    for (const Rollout& before : result_.last()) tails.push_back(compacted(before, options_, tokenizer));
    for (int64_t j = 0; j < options_.population; ++j) {
      round_.drawn.push_back(drawn_candidates(options_.sampling.seed, problem_.key, t, j, options_));
      std::vector<Ids> candidates;
      for (const int64_t i : round_.drawn.back()) candidates.push_back(tails[static_cast<size_t>(i)]);
      requests.push_back(request(aggregate_prompt(reasoner_.aggregate, *reasoner_.chat, tokenizer,
                                                  problem_.prompt, candidates, options_.enable_thinking),
                                 key, j, 1));
    }
  }
  round_.rollouts.resize(static_cast<size_t>(options_.population));
  return requests;
}

void RsaRun::token(const TokenEvent& e) {
  Rollout& r = round_.rollouts[static_cast<size_t>(e.sample)];
  ++r.decoded;
  if (e.stop) return;
  r.ids.push_back(e.id);
  r.text += e.text;
  (e.thinking ? r.reasoning : r.answer).push_back(e.id);
}

void RsaRun::finished(const Finished& f) {
  Rollout& r = round_.rollouts[static_cast<size_t>(f.sample)];
  r.text += f.text;
  r.finished = f.reason == FinishReason::stop_id;
}

int64_t RsaRun::longest_prompt() const {
  const std::vector<Ids> tails(static_cast<size_t>(options_.candidates),
                               Ids(static_cast<size_t>(options_.tail), 0));
  return static_cast<int64_t>(aggregate_prompt(reasoner_.aggregate, *reasoner_.chat, tokenizer_of(reasoner_),
                                               problem_.prompt, tails, options_.enable_thinking)
                                  .ids.size());
}

std::vector<RsaResult> markovian_rsa(const Reasoner& reasoner, std::span<const ReasonProblem> problems,
                                     const RsaOptions& options) {
  std::vector<RsaRun> runs;
  runs.reserve(problems.size());
  for (const ReasonProblem& problem : problems) runs.emplace_back(reasoner, problem, options);
  std::string error, hint;
  for (int64_t t = 0; t <= options.rounds; ++t) {
    CancelUnlessRun guard{*reasoner.engine};
    for (RsaRun& run : runs)
      for (Request& request : run.next())
        guard.requests.push_back(reasoner.engine->submit(
            std::move(request), {.token = [&run](const TokenEvent& e) { run.token(e); },
                                 .finished =
                                     [&](const Finished& f) {
                                       run.finished(f);
                                       if (!f.error.empty()) error = f.error, hint = f.hint;
                                     }}));
    reasoner.engine->run_until_idle();
    guard.run = true;
    if (!error.empty()) throw Error(error, hint);
  }
  std::vector<RsaResult> results;
  for (RsaRun& run : runs) {
    run.next();
    results.push_back(std::move(run.result()));
    if (options.rounds > 0) results.back().prompt_bound = run.longest_prompt();
  }
  return results;
}

}  // namespace ingot::reason
