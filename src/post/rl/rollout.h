// What reinforcement learning knows of a reply: the tokens that the policy drew with their recorded
// log-probabilities, and how it was judged. A group is one prompt with its replies. Plain data, and its form
// in rollouts.jsonl.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "environments/environment.h"
#include "infer/request.h"
#include "post/rl/curriculum.h"

namespace ingot {

/// Problems that a step of a run asks at most: its block of numbers, so that those of two steps never meet.
/// What calibration asks has a block of its own.
constexpr int64_t kProblemsPerStep = int64_t{1} << 20;

/// Experts are kept in a byte each; kSkippedExpert is the choice of a skip class.
constexpr int64_t kMostReplayedExperts = 255;
constexpr uint8_t kSkippedExpert = 0xFF;

struct Rollout {
  std::vector<int32_t> ids;     ///< of the reply, its stop id included
  std::vector<float> recorded;  ///< log-probability of each by the distribution that it was drawn from
  std::vector<bool> forced;     ///< ids of the thinking budget: not drawn, never in the loss
  /// Where top-k, top-p or min-p left tokens out: the ids that each was drawn from, ascending, one list after
  /// the other, and how many it has (0: forced). Else empty.
  std::vector<int32_t> kept, kept_counts;
  /// Where routes are replayed: experts of the row that each id was drawn after, [MoE layers][top_k].
  std::vector<uint8_t> routes;
  std::string text;  ///< with the marks of its reasoning
  int64_t thinking_tokens = 0;
  FinishReason finish = FinishReason::stop_id;
  uint64_t weights = 0;  ///< their version

  double reward = 0;  ///< of the task, after the canary
  double bonus = 0;   ///< for length: the reward of [ZAYA1] and the overlong penalty
  double advantage = 0;
  double compression = 1;  ///< least_compression_ratio()
  std::vector<environments::RewardPart> parts;
  std::string answer, note;
  bool left_out = false;  ///< its verifier failed: no part of its group

  bool truncated() const { return finish == FinishReason::max_tokens || finish == FinishReason::context; }
  int64_t length() const { return static_cast<int64_t>(ids.size()); }
  /// Tokens in the loss.
  int64_t drawn() const;
};

struct RolloutGroup {
  environments::Problem problem;
  Curriculum::Draw draw;
  uint64_t key = 0;  ///< of its random numbers
  std::vector<int32_t> prompt;
  std::optional<bool> thinking;  ///< what the template's switch said, where it has one and it was set
  bool asks_thinking = false;    ///< by a switch of the template
  bool opens_thinking = false;   ///< the prompt ends inside the reasoning
  std::vector<uint8_t> routes;   ///< of the prompt's rows but the last, where they are replayed
  std::vector<Rollout> rollouts;
  /// That the prompt shows (aggregation_prompt.h), and how many of them are right; 0: it shows none.
  int64_t candidates = 0, right_candidates = 0;

  /// Rewards and bonuses of the replies that count.
  std::vector<double> rewards() const;
  std::vector<double> bonuses() const;
  double pass_rate() const;  ///< mean reward of those; 0 where none count
  /// Replies that count differ in reward.
  bool signal() const;
};

/// One line of rollouts.jsonl: a reply with its group.
struct RolloutLine {
  int64_t step = 0;   ///< of the run: the update that was made with it, from 1
  int64_t group = 0;  ///< within the step
  int64_t sample = 0;
  std::string environment, problem, prompt;
  int64_t difficulty = 0;
  std::string text, answer, note, finish;
  std::vector<std::string> tokens;  ///< as text; bytes that are no UTF-8 are replaced
  std::vector<float> logprob;
  std::vector<int64_t> forced;  ///< places of forced tokens
  double reward = 0, bonus = 0, advantage = 0;
  std::vector<environments::RewardPart> parts;
};

std::string to_json_line(const RolloutLine& line);
/// Error on a line that to_json_line cannot have written; `where` names it.
RolloutLine parse_rollout_line(std::string_view text, const std::string& where);
/// The lines of a step in order; a damaged line is left out with a warning. Error where the file is absent.
std::vector<RolloutLine> read_rollouts(FileSystem& fs, const std::string& path, int64_t step);
/// Steps that the file has.
std::vector<int64_t> rollout_steps(FileSystem& fs, const std::string& path);

/// Groups as text that parse_groups() reads back, every number in its bits: what ranks tell each other, and
/// part of a checkpoint between two updates on one batch. Texts keep no bytes that are not UTF-8.
std::string groups_json(const std::vector<RolloutGroup>& groups);
std::vector<RolloutGroup> parse_groups(const std::string& text, const std::string& where);

/// The file's name in a run folder.
inline constexpr const char* kRolloutsFile = "rollouts.jsonl";

}  // namespace ingot
