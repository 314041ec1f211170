// The choices of reinforcement learning with verifiable rewards. What they mean is in src/post/rl.
#pragma once
#include <cstdint>

#include "base/enum.h"

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

/// Whether replies reason. any: as the template says when nothing is asked.
enum class RolloutThinking : uint8_t { any, on, off, mixed };
constexpr auto enum_names(RolloutThinking) {
  return names_in_order<RolloutThinking>("any", "on", "off", "mixed");
}

}  // namespace ingot
