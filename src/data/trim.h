// Answer-preserving trimming of conversations longer than a row ("ZAYA1-8B Technical Report", §III).
// Reasoning is shortened, answers never:
//   1. What fits is kept as it is.
//   2. Else the last reasoning loses tokens from its end, right before the answer; as much as fits is kept.
//   3. Where that is not enough, earlier reasoning goes with its tags, and rule 2 is applied again.
//   4. What is still too long, the answers alone, is left out.
// Kept tokens are those of the whole text, never encoded again. Trimming to a shorter row what was trimmed
// before gives what trimming to it at once gives, as long as the same rule applies.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ingot::data {

/// What stands around reasoning: one token each, such as <think> and </think>.
struct ReasoningMarks {
  int32_t open = -1, close = -1;
  /// By id: the token is white space only. Such tokens next to a mark belong to it: a cut leaves them, and
  /// reasoning of earlier turns goes with those behind it.
  std::vector<bool> space;
};

enum class TrimRule : uint8_t { whole, shortened, earlier_removed, dropped };

struct Trimmed {
  struct Range {
    int64_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  TrimRule rule = TrimRule::whole;
  std::vector<Range> kept;          ///< of the document's tokens, in order; none of a dropped one
  int64_t tokens = 0;               ///< in them
  int64_t reasoning = 0, left = 0;  ///< tokens of reasoning in the document, and of them kept
};

/// `tokens`: a document. Only reasoning in the loss (`in_loss`, by token) is touched.
Trimmed trim(std::span<const int32_t> tokens, const std::vector<bool>& in_loss, const ReasoningMarks& marks,
             int64_t capacity);

}  // namespace ingot::data
