// What a run records of the replies of a step. Names, all of replies that were sampled, also of groups that
// the batch does not have:
//   rl/reward, rl/reward/<environment>   mean task reward
//   rl/part/<name>                       mean of a part of the reward
//   rl/bonus                             mean of what length added
//   rl/length, rl/length/p90             tokens of a reply: mean, 90th percentile
//   rl/length/thinking, rl/length/plain  mean of replies that were asked to reason, and of the others
//   rl/sampled_tokens                    of all replies
//   rl/failed_verdicts                   replies whose verifier failed: no part of their groups
//   rl/truncated                         share of replies that reached max_tokens
//   rl/entropy                           mean of -log-probability over drawn tokens: nats per token
//   rl/repetition                        share of replies that the canary gave reward 0
//   rl/compression                       least share to which a stretch of a reply compressed
//   rl/rare_tokens, rl/gibberish         mean shares of tokens (canary.h)
//   rl/forced                            share of tokens that the thinking budget forced
#pragma once
#include <vector>

#include "post/rl/rollout.h"
#include "report/metrics.h"
#include "tokenizer/tokenizer.h"

namespace ingot {

void add_rollout_metrics(const std::vector<const RolloutGroup*>& groups, int64_t vocab, double repetition,
                         MetricRow& row);

/// Reply i of a group as rollouts.jsonl keeps it.
RolloutLine line_of(const RolloutGroup& group, size_t i, int64_t number, int64_t step,
                    const Tokenizer& tokenizer);

}  // namespace ingot
