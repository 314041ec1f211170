// See training_rows.h.
#include "reason/training_rows.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"

namespace ingot::reason {
namespace {

using environments::Environment;
using environments::Problem;
using environments::TraceStyle;

chat::Message teachers_reply(const Environment& environment, const Problem& problem, const Random& random,
                             TraceStyle style) {
  auto reply = environment.solve(problem, random, style);
  if (!reply)
    throw Error(fmt::format("environment '{}' has no teacher that solves its problems", environment.name()),
                "give --form prompts without --expert");
  return std::move(*reply);
}

/// The tail of a teacher's reasoning, cut as a rollout's is.
Candidate expert_candidate(const Environment& environment, const Problem& problem, const Random& random,
                           const RsaOptions& rsa, const Tokenizer& tokenizer) {
  const chat::Message reply = teachers_reply(environment, problem, random, TraceStyle::slips);
  Rollout rollout;
  rollout.reasoning = tokenizer.encode(reply.reasoning_content.value_or(""));
  rollout.answer = tokenizer.encode(reply.content.value_or(""));
  rollout.finished = true;
  const environments::Verdict verdict = environment.judge(problem, reply);
  return {tokenizer.decode(compacted(rollout, rsa, tokenizer)), verdict.answer, verdict.reward >= 1};
}

}  // namespace

std::vector<std::string> aggregation_rows(const AggregateTemplate& aggregate, const Tokenizer& tokenizer,
                                          const Environment& environment, const Problem& problem,
                                          std::span<const Rollout> rollouts, const RsaOptions& rsa,
                                          const AggregationOptions& options) {
  INGOT_CHECK(static_cast<int64_t>(rollouts.size()) == rsa.population, "{} rollouts", rollouts.size());
  std::vector<std::string> rows;
  for (int64_t row = 0; row < options.rows; ++row) {
    const uint64_t stream = hash64(fmt::format("aggregation {}/{}", problem.id(), row));
    const Random random(options.seed, RandomPurpose::environment, stream);
    std::vector<Candidate> candidates;
    for (const int64_t i : drawn_candidates(options.seed, stream, 1, row % rsa.population, rsa)) {
      const auto at = static_cast<uint64_t>(candidates.size());
      if (static_cast<double>(random.uniform(at)) < options.expert) {
        const Random teacher(options.seed, RandomPurpose::environment,
                             hash64(fmt::format("{}/{}", stream, at)));
        candidates.push_back(expert_candidate(environment, problem, teacher, rsa, tokenizer));
        continue;
      }
      const Rollout& rollout = rollouts[static_cast<size_t>(i)];
      const environments::Verdict verdict = environment.judge(problem, rollout.reply);
      candidates.push_back(
          {tokenizer.decode(compacted(rollout, rsa, tokenizer)), verdict.answer, verdict.reward >= 1});
    }
    if (options.form == AggregationForm::messages) {
      const chat::Message teacher = teachers_reply(environment, problem, random, TraceStyle::checked);
      rows.push_back(
          chat::write_conversation(aggregation_example(aggregate, problem.prompt, candidates, teacher)));
      continue;
    }
    std::vector<std::string> texts;
    for (const Candidate& c : candidates) texts.push_back(c.text);
    nlohmann::ordered_json json = {{"prompt", nlohmann::ordered_json::array()}, {"id", problem.id()}};
    for (const chat::Message& m : aggregate.conversation(problem.prompt, texts).messages)
      json["prompt"].push_back({{"role", m.role}, {"content", m.content.value_or("")}});
    rows.push_back(json.dump());
  }
  return rows;
}

}  // namespace ingot::reason
