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
  int64_t rows = 1;   ///< of each problem, each with candidates of its own
  double expert = 0;  ///< share of candidates that the teacher writes
  uint64_t seed = 0;
};

/// Lines of JSON for one problem: C of its rollouts each, cut as `rsa` says. Error: an environment without a
/// teacher, where one is needed.
std::vector<std::string> aggregation_rows(const AggregateTemplate& aggregate, const Tokenizer& tokenizer,
                                          const environments::Environment& environment,
                                          const environments::Problem& problem,
                                          std::span<const Rollout> rollouts, const RsaOptions& rsa,
                                          const AggregationOptions& options);

}  // namespace ingot::reason
