// Budgets for thinking and for the answer: what state a sample is in, and which ids are forced when its
// thinking has taken all that it may. A pure function of the ids so far. ([ZAYA1] §V; Qwen 3's thinking
// budget)
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chat/reply_parser.h"
#include "tokenizer/tokenizer.h"

namespace ingot {

struct ThinkingBudget {
  std::vector<int32_t> open, close;  ///< ids that begin and end thinking; empty close: no thinking
  /// Drawn tokens between the marks after which the ids of `closing` are forced, one per step; -1: no limit.
  int64_t max_tokens = -1;
  std::vector<int32_t> closing;  ///< ends with `close`; empty: `close` alone
  int64_t answer_tokens = -1;    ///< drawn tokens after the thinking, or without any; -1: no limit
  bool opened = false;           ///< the prompt has begun the thinking
};

/// The budget of a reply in `format`, whose marks are special tokens; no thinking where the format has none.
ThinkingBudget thinking_budget(const chat::ReplyFormat& format, const Tokenizer& tokenizer,
                               int64_t max_tokens, bool opened);
/// Throws an Error that names the first field that contradicts another.
void validate(const ThinkingBudget& budget);

class ThinkingState {
 public:
  enum class Phase { before, thinking, answer };

  explicit ThinkingState(const ThinkingBudget& budget);
  /// The id that must come next, where one must.
  std::optional<int32_t> forced() const;
  /// The next id of the sample. False: the budget of the answer is spent.
  bool push(int32_t id);
  Phase phase() const { return phase_; }
  /// Whether the last id pushed belongs to the thinking, its marks included.
  bool inside() const { return inside_; }
  int64_t thinking_tokens() const { return thinking_; }

 private:
  bool ends_with(std::span<const int32_t> mark) const;

  const ThinkingBudget* budget_;  ///< of the request, which outlives its samples
  Phase phase_ = Phase::before;
  std::vector<int32_t> recent_;  ///< the last ids, as many as the longest mark has
  int64_t thinking_ = 0, answer_ = 0;
  size_t forcing_ = 0;  ///< ids of `closing` that have come
  bool closing_ = false, inside_ = false;
};

}  // namespace ingot
