// The prompt that shows a model several candidates and asks for one improved solution ([ZAYA1-8B] §IV-B3):
// one user's message from one template, whether the candidates come from the model itself, from a teacher, in
// training or when a problem is reasoned about. What is trained is what is run.
//
// A candidate stands in the prompt by its very ids: rendering and encoding never touch them. Immutable
// values; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/enum.h"
#include "chat/chat_template.h"
#include "chat/conversation.h"
#include "tokenizer/tokenizer.h"

namespace ingot::reason {

/// Jinja text with the variables `problem` and `candidates` (a list of texts); one candidate asks to refine.
class AggregateTemplate {
 public:
  /// "aggregate": the shipped one.
  AggregateTemplate();
  /// `name` stands for the text in messages. Error: no template.
  AggregateTemplate(std::string source, const std::string& name);

  /// The user's message. Error: a candidate does not stand in it, or stands in it twice.
  std::string message(const std::string& problem, std::span<const std::string> candidates) const;
  /// The conversation with its last message replaced by message().
  chat::Conversation conversation(const chat::Conversation& problem,
                                  std::span<const std::string> candidates) const;

 private:
  chat::ChatTemplate template_;
};

using Ids = std::vector<int32_t>;

/// The ids that generation continues, with each candidate's ids in its place; `ends_in_thinking` as
/// chat::Rendered's. The length is that with empty candidates and the candidates' own lengths.
struct AggregatePrompt {
  Ids ids;
  bool ends_in_thinking = false;
};
AggregatePrompt aggregate_prompt(const AggregateTemplate& aggregate, const chat::ChatTemplate& chat,
                                 const Tokenizer& tokenizer, const chat::Conversation& problem,
                                 std::span<const Ids> candidates, std::optional<bool> enable_thinking);

/// The longest suffix of at most `most` ids without a control token: one inside would end the message.
Ids tail_of(std::span<const int32_t> ids, int64_t most, const Tokenizer& tokenizer);

/// A candidate as a row of training shows it.
struct Candidate {
  std::string text;    ///< of the tail
  std::string answer;  ///< what it came to; "" for none
  bool right = false;
  Ids ids = {};  ///< the tail itself, where it was drawn or encoded
};

/// What a reply that teaches aggregation does: `choice` says of each candidate in turn whether it is right,
/// takes the answer of the first that is, and gives the teacher's solution where none is. `solution` gives
/// the teacher's in any case: its own tail is one that a later round can check.
enum class AggregationReply : uint8_t { choice, solution };
constexpr auto enum_names(AggregationReply) {
  return names_in_order<AggregationReply>("choice", "solution");
}

/// A conversation that teaches aggregation: the prompt, and a reply of the kind.
chat::Conversation aggregation_example(const AggregateTemplate& aggregate, const chat::Conversation& problem,
                                       std::span<const Candidate> candidates, const chat::Message& teacher,
                                       AggregationReply kind);

}  // namespace ingot::reason
