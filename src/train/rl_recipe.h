// [phases.rl] of a phase of kind "rl": reinforcement learning with verifiable rewards. Plain data; what it
// means is in src/post/rl. docs/rl.md explains it by example.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/enum.h"
#include "reason/compaction.h"
#include "train/post_recipe.h"

namespace ingot {

/// How rewards of a group become advantages (post/rl/advantage.h).
enum class AdvantageKind : uint8_t { reinforce, rloo, grpo, dr_grpo, maxrl };
constexpr auto enum_names(AdvantageKind) {
  return names_in_order<AdvantageKind>("reinforce", "rloo", "grpo", "dr_grpo", "maxrl");
}

/// What a token's loss is (post/rl/policy_loss.h).
enum class PolicyLossKind : uint8_t { reinforce, clip, cispo, dppo };
constexpr auto enum_names(PolicyLossKind) {
  return names_in_order<PolicyLossKind>("reinforce", "clip", "cispo", "dppo");
}

/// How losses of tokens become one number (post/rl/aggregation.h).
enum class Aggregation : uint8_t { constant, token, sequence };
constexpr auto enum_names(Aggregation) {
  return names_in_order<Aggregation>("constant", "token", "sequence");
}

/// What happens when a recorded log-probability is not the one that training computes, in the first update.
enum class Exactness : uint8_t { require, report };
constexpr auto enum_names(Exactness) {
  return names_in_order<Exactness>("require", "report");
}

/// [[phases.rl.environments]]
struct RlEnvironmentConfig {
  std::string name;
  double weight = 1;
  std::optional<int64_t> difficulty, least, most;
  int64_t rows = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "of an environment (`ingot environment list`), or a .jsonl file of problems");
    v("weight", weight, "its share of the prompts, relative to the others'", positive(bounds::kWeight));
    v("difficulty", difficulty, "first difficulty of the frontier; none: the least", any_integer());
    v("least", least, "smallest difficulty; none: the environment's", any_integer());
    v("most", most, "largest difficulty; none: the environment's", any_integer());
    v("rows", rows, "rows of its file, for the epochs of a plan that is made without it; 0: unknown",
      up_to(bounds::kTokens));
  }
  void validate(ConfigErrors& e) const {
    if (name.empty()) e.add("name", "must not be empty");
  }
};

/// [phases.rl.curriculum]
struct RlCurriculumConfig {
  bool moves = true;
  int64_t window = 4;
  double raise = 0.7;
  int64_t calibrate = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("moves", moves, "difficulty follows what the policy solves; false: all difficulties, evenly");
    v("window", window, "difficulties below the frontier that are drawn too; 0: the frontier alone",
      up_to(bounds::kSteps));
    v("raise", raise,
      "a group at the frontier with a higher pass rate moves it up; one without any success, down",
      below_one());
    v("calibrate", calibrate,
      "groups per environment, before the first step, that find the difficulty of which half is solved: the "
      "first frontier; 0: none",
      up_to(10000));
  }
};

/// [phases.rl.filter]
struct RlFilterConfig {
  int64_t pool = 0, samples = 4;
  double least = 0, most = 0.75;
  template <class Visitor>
  void visit(Visitor& v) {
    v("pool", pool,
      "problems of each environment that are tried before the first step; prompts are those that were kept, "
      "over and over; 0: every prompt is a new problem",
      up_to(0x1p19));
    v("samples", samples, "replies to each of them (with thinking = mixed, in each mode)", between(1, 4096));
    v("least", least, "pass rates below it are left out", up_to(1));
    v("most", most, "pass rates above it are left out: what the policy can do already", up_to(1));
  }
  void validate(ConfigErrors& e) const {
    if (least > most) e.add("least", "must be at most `most` = {}, found {}", most, least);
  }
};

/// [phases.rl.aggregation]
struct RlAggregationConfig {
  double share = 0;
  int64_t candidates = 4, tail = 32;
  reason::Compaction compaction = reason::Compaction::tail;
  double expert = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("share", share, "of the prompts that show candidates and ask for one solution; 0: none", up_to(1));
    v("candidates", candidates, "that such a prompt shows: the policy's own replies to the problem",
      between(1, 4096));
    v("tail", tail, "tokens of a candidate that are shown", between(1, bounds::kSequence));
    v("compaction", compaction,
      "what is shown of it: tail (of its reasoning), pacore (its answer) or hybrid");
    v("expert", expert, "share of the candidates that the environment's teacher writes, right or wrong",
      up_to(1));
  }
};

/// [phases.rl.length]
struct RlLengthConfig {
  double reward = 0;
  int64_t ramp = 0;
  int64_t tolerance = 0;
  int64_t longest = 0;
  double accuracy_tolerance = 0.05;
  int64_t overlong = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("reward", reward, "coefficient of the bonus for short correct replies; 0: none",
      up_to(bounds::kWeight));
    v("ramp", ramp, "steps over which the coefficient grows from a tenth to its value",
      up_to(bounds::kSteps));
    v("tolerance", tolerance, "tokens above the shortest correct reply that cost nothing",
      up_to(bounds::kSequence));
    v("longest", longest, "tokens from which on the bonus is least; 0: max_tokens", up_to(bounds::kSequence));
    v("accuracy_tolerance", accuracy_tolerance,
      "no bonus where the group's pass rate is this much below its environment's best", up_to(1));
    v("overlong", overlong, "last tokens before max_tokens over which the reward falls by up to 1; 0: none",
      up_to(bounds::kSequence));
  }
};

/// [phases.rl.loss]
struct RlLossConfig {
  PolicyLossKind kind = PolicyLossKind::dppo;
  Aggregation aggregation = Aggregation::constant;
  int64_t constant = 0;
  double clip_low = 0.2, clip_high = 0.2, dual_clip = 0;
  double cispo_cap = 5, delta = 0.1, ratio_cap = 20;
  template <class Visitor>
  void visit(Visitor& v) {
    v("kind", kind,
      "reinforce, clip (PPO, GRPO, DAPO), cispo or dppo; all are the same in a batch's first update");
    v("aggregation", aggregation,
      "constant: mean over sequences of token sums / constant; token: mean over tokens; sequence: mean of "
      "means");
    v("constant", constant, "tokens that a sequence's sum is divided by; 0: max_tokens",
      up_to(bounds::kTokens));
    v("clip_low", clip_low, "clip: ratios below 1 - this of bad tokens have no gradient", below_one());
    v("clip_high", clip_high, "clip: ratios above 1 + this of good tokens have no gradient; DAPO: 0.28",
      positive(bounds::kWeight));
    v("dual_clip", dual_clip, "clip: largest loss of a bad token, in units of its advantage; 0: none",
      zero_or(1, bounds::kWeight));
    v("cispo_cap", cispo_cap, "cispo: largest weight of a token", positive(bounds::kWeight));
    v("delta", delta, "dppo: change of a token's probability beyond which it is not driven further",
      positive(1));
    v("ratio_cap", ratio_cap, "reinforce, dppo: largest weight of a token", between(1, bounds::kWeight));
  }
};

/// [phases.rl.replay]
struct RlReplayConfig {
  int64_t rows = 0;
  double weight = 0.1;
  template <class Visitor>
  void visit(Visitor& v) {
    v("rows", rows,
      "of a step that show text of the sources in the phase's `weights`, so that it is not forgotten; 0: "
      "none",
      up_to(65536));
    v("weight", weight, "factor on the mean loss of the text, which is added to the policy's",
      positive(bounds::kWeight));
  }
};

/// [phases.rl]
struct RlConfig {
  std::vector<RlEnvironmentConfig> environments;
  int64_t prompts = 16, samples = 16;
  int64_t max_tokens = 128, reply_tokens = 0;
  double signal_share = 1;
  int64_t thinking_tokens = -1, answer_tokens = -1;
  RolloutThinking thinking = RolloutThinking::any;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0;
  AdvantageKind advantage = AdvantageKind::maxrl;
  RlLossConfig loss;
  RlLengthConfig length;
  RlCurriculumConfig curriculum;
  RlFilterConfig filter;
  double kl_reference = 0;
  RlAggregationConfig aggregation;
  RlReplayConfig replay;
  bool need_signal = true;
  int64_t resample = 4;
  int64_t updates_per_batch = 1;
  Exactness exact = Exactness::require;
  double repetition = 0.05;
  int64_t repetition_chunk = 1024;
  int64_t cache_mib = 512;
  int64_t record_groups = 2;
  /// Tokens of a candidate's answer and of its thinking: the budgets, where they are given.
  int64_t candidate_answer() const {
    return answer_tokens >= 0 ? answer_tokens : std::max<int64_t>(1, max_tokens / 4);
  }
  int64_t candidate_budget() const {
    return thinking_tokens >= 0 ? thinking_tokens : std::max<int64_t>(1, max_tokens - candidate_answer());
  }
  template <class Visitor>
  void visit(Visitor& v) {
    v("environments", environments, "what is asked");
    v("prompts", prompts, "groups of a batch, one prompt each", between(1, 65536));
    v("samples", samples, "replies to each prompt", between(1, 4096));
    v("max_tokens", max_tokens, "of a reply", between(1, bounds::kSequence));
    v.free("reply_tokens", reply_tokens,
           "that a reply has on average, by which plans count work and time; 0: they count with max_tokens",
           up_to(bounds::kSequence));
    v.free("signal_share", signal_share,
           "of the groups that are drawn on average, by which plans count what need_signal draws again",
           between(0.01, 1));
    v("thinking_tokens", thinking_tokens,
      "of a reply's reasoning, after which its end is forced (and never trained on); -1: no limit",
      between(-1, bounds::kSequence));
    v("answer_tokens", answer_tokens, "of a reply after its reasoning; -1: no limit",
      between(-1, bounds::kSequence));
    v("thinking", thinking,
      "whether replies reason: any (as the template does), on, off, mixed (every other prompt)");
    v("temperature", temperature, "logits are divided by it, where replies are drawn and in the loss",
      between(0.01, 100));
    v("top_k", top_k, "replies are drawn from the k most likely tokens, as the loss then is of them; 0: all",
      up_to(bounds::kVocabulary));
    v("top_p", top_p, "likewise from the smallest set of tokens with this total probability", positive(1));
    v("min_p", min_p, "likewise without tokens below this fraction of the largest probability", up_to(1));
    v("advantage", advantage, "reinforce, rloo, grpo (with deviation), dr_grpo (without), maxrl");
    v("loss", loss, "loss of a token, and how tokens add up");
    v("length", length, "rewards for length");
    v("curriculum", curriculum, "difficulty of the prompts");
    v("filter", filter, "problems that are neither too easy nor too hard");
    v("kl_reference", kl_reference,
      "coefficient of the divergence from the model that the phase began with; 0: none, and no second model",
      up_to(bounds::kWeight));
    v("aggregation", aggregation, "prompts that show candidates, as test-time compute does");
    v("replay", replay, "text beside the replies");
    v("need_signal", need_signal,
      "groups whose rewards are all equal are left out and replaced (dynamic sampling)");
    v("resample", resample, "times that missing groups are sampled again, at most", up_to(1000));
    v("updates_per_batch", updates_per_batch, "optimizer steps on the same replies", between(1, 1000));
    v("exact", exact,
      "require: the run stops where a recorded log-probability is not the one that the first update "
      "computes; report: it counts them");
    v("repetition", repetition,
      "a reply with a stretch that compresses to less than this share has reward 0; 0: off", below_one());
    v("repetition_chunk", repetition_chunk, "tokens of such a stretch", between(16, bounds::kSequence));
    v.free("cache_mib", cache_mib, "memory for cached keys and values while replies are sampled",
           between(1, 0x1p30, "MiB"));
    v.free("record_groups", record_groups, "groups of each step that are kept in rollouts.jsonl",
           up_to(65536));
  }
  /// Some tokens cannot be drawn.
  bool filters_tokens() const { return top_k > 0 || top_p < 1 || min_p > 0; }
  void validate(ConfigErrors& e) const {
    if (filter.pool > 0 && curriculum.moves)
      e.add("filter.pool", "keeps problems of the difficulties that it found; set curriculum.moves = false");
    if (environments.empty()) e.add("environments", "at least one is needed");
    if (reply_tokens > max_tokens)
      e.add("reply_tokens", "must be at most max_tokens = {}, found {}", max_tokens, reply_tokens);
    if (signal_share < 1 && !need_signal)
      e.add("signal_share", "counts groups that need_signal draws again, and need_signal is false");
    if (samples < 2 && advantage != AdvantageKind::reinforce)
      e.add("samples", "advantage {} compares the replies to a prompt: at least 2, found {}",
            name_of(advantage), samples);
    if (aggregation.share > 0 && aggregation.tail > candidate_budget())
      e.add("aggregation.tail", "must be at most the {} tokens that a candidate may think, found {}",
            candidate_budget(), aggregation.tail);
    if (length.longest > max_tokens)
      e.add("length.longest", "must be at most max_tokens = {}, found {}", max_tokens, length.longest);
    if (length.overlong >= max_tokens)
      e.add("length.overlong", "must be below max_tokens = {}, found {}", max_tokens, length.overlong);
  }
};

}  // namespace ingot
