// See aggregation_prompt.h.
#include "post/rl/aggregation_prompt.h"

#include <fmt/core.h>

#include <cmath>

#include "base/hash.h"
#include "infer/engine.h"
#include "reason/training_rows.h"

namespace ingot {
namespace {

/// Candidates are a first round, as it is run when a problem is reasoned about.
reason::RsaOptions first_round(const RlConfig& c, uint64_t seed, std::optional<bool> thinking) {
  reason::RsaOptions rsa;
  rsa.population = rsa.candidates = c.aggregation.candidates;
  rsa.rounds = 0;
  rsa.budget = std::max<int64_t>(1, c.candidate_budget());
  rsa.answer_tokens = std::max<int64_t>(1, c.candidate_answer());
  rsa.tail = std::min(c.aggregation.tail, rsa.budget);
  rsa.compaction = c.aggregation.compaction;
  rsa.sampling.seed = seed;
  rsa.enable_thinking = thinking;
  return rsa;
}

}  // namespace

bool shows_candidates(const RlAggregationConfig& config, int64_t number) {
  // Multiples of the golden ratio fill [0, 1) evenly, and keep no step with what goes by odd and even.
  constexpr double kGolden = 0.6180339887498949;
  return std::fmod(static_cast<double>(number) * kGolden, 1.0) < config.share;
}

AggregationPrompts::AggregationPrompts(const Model& model, const Tokenizer& tokenizer,
                                       const chat::ChatTemplate& chat_template, const RlConfig& config,
                                       uint64_t seed)
    : model_(model), tokenizer_(tokenizer), template_(chat_template), config_(config), seed_(seed) {}

void AggregationPrompts::show(std::span<RolloutGroup* const> groups, const RolloutSampler& sampler) const {
  // Groups of one mode are asked together.
  for (const std::optional<bool> thinking :
       {std::optional<bool>(), std::optional(true), std::optional(false)}) {
    std::vector<RolloutGroup*> asked;
    std::vector<reason::ReasonProblem> problems;
    for (RolloutGroup* g : groups)
      if (g->thinking == thinking) {
        asked.push_back(g);
        problems.push_back({g->problem.prompt, hash64(fmt::format("candidates {}", g->key))});
      }
    if (asked.empty()) continue;
    const reason::RsaOptions rsa = first_round(config_, seed_, thinking);
    Engine engine(model_, tokenizer_, {.cache_bytes = config_.cache_mib << 20});
    const reason::Reasoner reasoner{&engine, &template_, sampler.stop_ids(), {}};
    const std::vector<reason::RsaResult> results = reason::markovian_rsa(reasoner, problems, rsa);
    for (size_t i = 0; i < asked.size(); ++i) {
      RolloutGroup& g = *asked[i];
      const std::vector<reason::Candidate> candidates = reason::mixed_candidates(
          tokenizer_, *environments::find_environment(g.problem.environment), g.problem, results[i].last(),
          rsa, {config_.aggregation.expert, seed_, problems[i].key, 0});
      std::vector<reason::Ids> ids;
      std::vector<std::string> texts;
      g.candidates = static_cast<int64_t>(candidates.size()), g.right_candidates = 0;
      for (const reason::Candidate& c : candidates)
        ids.push_back(c.ids), texts.push_back(c.text), g.right_candidates += c.right ? 1 : 0;
      reason::AggregatePrompt prompt =
          reason::aggregate_prompt(aggregate_, template_, tokenizer_, g.problem.prompt, ids, thinking);
      sampler.set_prompt(g, std::move(prompt.ids), prompt.ends_in_thinking);
      g.problem.prompt = aggregate_.conversation(g.problem.prompt, texts);  // for people: rollouts.jsonl
    }
  }
}

void add_aggregation_metrics(const std::vector<const RolloutGroup*>& groups, MetricRow& row) {
  double reward = 0, replies = 0, right = 0, candidates = 0, picked = 0, could = 0, rescued = 0, alone = 0;
  for (const RolloutGroup* g : groups) {
    if (g->candidates == 0) continue;
    candidates += static_cast<double>(g->candidates), right += static_cast<double>(g->right_candidates);
    for (const double r : g->rewards()) {
      reward += r, ++replies;
      if (g->right_candidates > 0)
        picked += r, ++could;
      else
        rescued += r, ++alone;
    }
  }
  if (replies > 0) row.set("rl/aggregation/reward", reward / replies);
  if (candidates > 0) row.set("rl/aggregation/right", right / candidates);
  if (could > 0) row.set("rl/aggregation/picked", picked / could);
  if (alone > 0) row.set("rl/aggregation/rescued", rescued / alone);
}

}  // namespace ingot
