// See training_rows.h.
#include "reason/training_rows.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "reason/mistake.h"

namespace ingot::reason {
namespace {

using environments::Environment;
using environments::Problem;
using environments::TraceStyle;

/// The tail of a teacher's reply, cut as a rollout's is.
Candidate expert_candidate(const Environment& environment, const Problem& problem, const Random& random,
                           const RsaOptions& rsa, const Tokenizer& tokenizer) {
  chat::Message reply = teachers_reply(environment, problem, random, TraceStyle::slips);
  const bool spoil = random.below(uint64_t{1} << 32, 2) == 0;  // beyond what the teacher draws
  const bool shows_reasoning = rsa.compaction == Compaction::tail && reply.reasoning_content;
  if (spoil)
    if (auto wrong = with_mistake(environment, problem, reply, shows_reasoning, random)) reply = *wrong;
  Rollout rollout;
  rollout.reasoning = tokenizer.encode(reply.reasoning_content.value_or(""));
  rollout.answer = tokenizer.encode(reply.content.value_or(""));
  rollout.finished = true;
  const environments::Verdict verdict = environment.judge(problem, reply);
  Ids ids = compacted(rollout, rsa, tokenizer);
  std::string text = tokenizer.decode(ids);
  return {std::move(text), verdict.answer, verdict.reward >= 1, std::move(ids)};
}

}  // namespace

chat::Message teachers_reply(const Environment& environment, const Problem& problem, const Random& random,
                             TraceStyle style) {
  auto reply = environment.solve(problem, random, style);
  if (!reply)
    throw Error(fmt::format("environment '{}' has no teacher that solves its problems", environment.name()),
                "ask for prompts of the model's own replies (--form prompts, expert = 0)");
  return std::move(*reply);
}

std::vector<Candidate> mixed_candidates(const Tokenizer& tokenizer, const Environment& environment,
                                        const Problem& problem, std::span<const Rollout> rollouts,
                                        const RsaOptions& rsa, const CandidateMix& mix) {
  INGOT_CHECK(static_cast<int64_t>(rollouts.size()) == rsa.population, "{} rollouts", rollouts.size());
  const Random random(mix.seed, RandomPurpose::environment, mix.stream);
  std::vector<Candidate> candidates;
  for (const int64_t i : drawn_candidates(mix.seed, mix.stream, 1, mix.rollout, rsa)) {
    const auto at = static_cast<uint64_t>(candidates.size());
    if (static_cast<double>(random.uniform(at)) < mix.expert) {
      const Random teacher(mix.seed, RandomPurpose::environment,
                           hash64(fmt::format("{}/{}", mix.stream, at)));
      candidates.push_back(expert_candidate(environment, problem, teacher, rsa, tokenizer));
      continue;
    }
    const Rollout& rollout = rollouts[static_cast<size_t>(i)];
    const environments::Verdict verdict = environment.judge(problem, rollout.reply);
    Ids ids = compacted(rollout, rsa, tokenizer);
    std::string text = tokenizer.decode(ids);
    candidates.push_back({std::move(text), verdict.answer, verdict.reward >= 1, std::move(ids)});
  }
  return candidates;
}

std::string aggregation_prompt_row(const AggregateTemplate& aggregate, const chat::Conversation& problem,
                                   std::span<const Candidate> candidates, const std::string& id) {
  std::vector<std::string> texts;
  for (const Candidate& c : candidates) texts.push_back(c.text);
  nlohmann::ordered_json json = {{"prompt", nlohmann::ordered_json::array()}, {"id", id}};
  for (const chat::Message& m : aggregate.conversation(problem, texts).messages)
    json["prompt"].push_back({{"role", m.role}, {"content", m.content.value_or("")}});
  return json.dump();
}

std::vector<std::string> aggregation_rows(const AggregateTemplate& aggregate, const Tokenizer& tokenizer,
                                          const Environment& environment, const Problem& problem,
                                          std::span<const Rollout> rollouts, const RsaOptions& rsa,
                                          const AggregationOptions& options) {
  std::vector<std::string> rows;
  for (int64_t row = 0; row < options.rows; ++row) {
    const uint64_t stream = hash64(fmt::format("aggregation {}/{}", problem.id(), row));
    const std::vector<Candidate> candidates =
        mixed_candidates(tokenizer, environment, problem, rollouts, rsa,
                         {options.expert, options.seed, stream, row % rsa.population});
    if (options.form == AggregationForm::prompts) {
      rows.push_back(aggregation_prompt_row(aggregate, problem.prompt, candidates, problem.id()));
      continue;
    }
    const Random random(options.seed, RandomPurpose::environment, stream);
    const chat::Message teacher = teachers_reply(environment, problem, random, TraceStyle::checked);
    rows.push_back(chat::write_conversation(
        aggregation_example(aggregate, problem.prompt, candidates, teacher, options.reply)));
  }
  return rows;
}

}  // namespace ingot::reason
