// See rollout_metrics.h.
#include "post/rl/rollout_metrics.h"

#include <algorithm>
#include <map>

#include "post/rl/canary.h"

namespace ingot {
namespace {

/// A running mean.
struct RolloutMean {
  double sum = 0;
  int64_t count = 0;
  void add(double value) { sum += value, ++count; }
  double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

}  // namespace

void add_rollout_metrics(const std::vector<const RolloutGroup*>& groups, int64_t vocab, double repetition,
                         MetricRow& row) {
  RolloutMean reward, bonus, length, truncated, entropy, repeated, rare, gibberish, forced, thinking, plain;
  std::map<std::string, RolloutMean> by_environment, by_part;
  std::vector<int64_t> lengths;
  double compression = 1, failed = 0;
  for (const RolloutGroup* g : groups)
    for (const Rollout& r : g->rollouts) {
      const auto tokens = static_cast<double>(r.length());
      length.add(tokens), (g->asks_thinking ? thinking : plain).add(tokens);
      lengths.push_back(r.length());
      truncated.add(r.truncated() ? 1 : 0);
      repeated.add(r.compression < repetition ? 1 : 0);
      compression = std::min(compression, r.compression);
      rare.add(rare_token_share(r.ids, vocab, 0.1));
      gibberish.add(gibberish_share(r.ids, r.recorded, vocab));
      for (size_t t = 0; t < r.ids.size(); ++t) {
        forced.add(r.forced[t] ? 1 : 0);
        if (!r.forced[t]) entropy.add(-static_cast<double>(r.recorded[t]));
      }
      if (r.left_out) {
        ++failed;
        continue;
      }
      reward.add(r.reward), bonus.add(r.bonus);
      by_environment[g->problem.environment].add(r.reward);
      for (const environments::RewardPart& p : r.parts) by_part[p.name].add(p.value);
    }
  row.set("rl/reward", reward.value());
  for (const auto& [name, mean] : by_environment) row.set("rl/reward/" + name, mean.value());
  for (const auto& [name, mean] : by_part) row.set("rl/part/" + name, mean.value());
  row.set("rl/bonus", bonus.value());
  row.set("rl/length", length.value());
  if (!lengths.empty()) {
    const auto at = lengths.begin() + static_cast<std::ptrdiff_t>((lengths.size() - 1) * 9 / 10);
    std::nth_element(lengths.begin(), at, lengths.end());
    row.set("rl/length/p90", static_cast<double>(*at));
  }
  if (thinking.count > 0) row.set("rl/length/thinking", thinking.value());
  if (plain.count > 0) row.set("rl/length/plain", plain.value());
  row.set("rl/sampled_tokens", length.sum);
  row.set("rl/failed_verdicts", failed);
  row.set("rl/truncated", truncated.value());
  row.set("rl/entropy", entropy.value());
  row.set("rl/repetition", repeated.value());
  row.set("rl/compression", compression);
  row.set("rl/rare_tokens", rare.value());
  row.set("rl/gibberish", gibberish.value());
  row.set("rl/forced", forced.value());
}

RolloutLine line_of(const RolloutGroup& group, size_t i, int64_t number, int64_t step,
                    const Tokenizer& tokenizer) {
  const Rollout& r = group.rollouts[i];
  RolloutLine line;
  line.step = step, line.group = number, line.sample = static_cast<int64_t>(i);
  line.environment = group.problem.environment, line.problem = group.problem.id();
  line.difficulty = group.problem.difficulty;
  for (const chat::Message& m : group.problem.prompt.messages)
    line.prompt += (line.prompt.empty() ? "" : "\n") + m.content.value_or("");
  line.text = r.text, line.answer = r.answer, line.note = r.note, line.finish = name_of(r.finish);
  line.reward = r.reward, line.bonus = r.bonus, line.advantage = r.advantage, line.parts = r.parts;
  line.logprob = r.recorded;
  for (size_t t = 0; t < r.ids.size(); ++t) {
    line.tokens.emplace_back(tokenizer.token_bytes(r.ids[t]));
    if (r.forced[t]) line.forced.push_back(static_cast<int64_t>(t));
  }
  return line;
}

}  // namespace ingot
