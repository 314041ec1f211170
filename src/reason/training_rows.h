// Rows that teach aggregation, made from rollouts of a model ("self") and from a teacher's solutions
// ("expert"): for SFT a conversation whose reply a teacher wrote, for RL the prompt with the id of the
// problem that judges it. Only of a first round: later ones look alike. ([ZAYA1-8B] §IV-B3)
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "environments/environment.h"
#include "reason/markovian_rsa.h"

namespace ingot::reason {

enum class AggregationForm : uint8_t { messages, prompts };
constexpr auto enum_names(AggregationForm) {
  return names_in_order<AggregationForm>("messages", "prompts");
}

struct AggregationOptions {
  AggregationForm form = AggregationForm::messages;
  AggregationReply reply = AggregationReply::choice;  ///< of form `messages`
  int64_t rows = 1;                                   ///< of each problem, each with candidates of its own
  double expert = 0;  ///< share of candidates that the teacher writes, half of them with a mistake
  uint64_t seed = 0;
};

/// C candidates of one prompt, in order: those that drawn_candidates() takes of the N rollouts, judged and
/// cut as `rsa` says, or with chance `expert` each the teacher's instead, every other one with a planted
/// mistake.
/// A function of (seed, stream). Error: an environment without a teacher, where one is needed.
struct CandidateMix {
  double expert = 0;
  uint64_t seed = 0, stream = 0;
  int64_t rollout = 0;  ///< whose prompt it is, of N: with C = 1 it sees its own
};
std::vector<Candidate> mixed_candidates(const Tokenizer& tokenizer,
                                        const environments::Environment& environment,
                                        const environments::Problem& problem,
                                        std::span<const Rollout> rollouts, const RsaOptions& rsa,
                                        const CandidateMix& mix);

/// The teacher's reply; Error where the environment has none.
chat::Message teachers_reply(const environments::Environment& environment,
                             const environments::Problem& problem, const Random& random,
                             environments::TraceStyle style);

/// {"prompt": [messages], "id"}: what a file of problems has (environments/row_environment.h).
std::string aggregation_prompt_row(const AggregateTemplate& aggregate, const chat::Conversation& problem,
                                   std::span<const Candidate> candidates, const std::string& id);

/// Lines of JSON for one problem: C of its rollouts each, cut as `rsa` says. Error: an environment without a
/// teacher, where one is needed.
std::vector<std::string> aggregation_rows(const AggregateTemplate& aggregate, const Tokenizer& tokenizer,
                                          const environments::Environment& environment,
                                          const environments::Problem& problem,
                                          std::span<const Rollout> rollouts, const RsaOptions& rsa,
                                          const AggregationOptions& options);

}  // namespace ingot::reason
