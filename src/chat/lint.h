// What is wrong with conversations as training data, in a given template: text that is lost, masks that hold
// too little or too much, replies that would not be read back as they were, control tokens that messages
// spell. A Lint belongs to one thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace ingot::chat {

enum class LintKind : uint8_t {
  unreadable,         ///< no row of a conversation (conversation.h)
  null_field,         ///< a field that is null wherever it appears, in the rows as a whole
  refused,            ///< the template refuses the conversation, or fails
  system_absent,      ///< the system's text is not in the rendering
  message_absent,     ///< nor is the text of another message
  reasoning_dropped,  ///< nor is the reasoning of a reply that is in the loss
  empty_mask,         ///< nothing is in the loss
  mask_covers_other,  ///< the mask holds text that the assistant did not write
  mask_misses,        ///< the mask lacks text that the assistant wrote
  no_end,             ///< the end of the assistant's turn is not in the loss: replies would not end
  not_read_back,      ///< ReplyParser reads the rendered reply as another message
  control_text,       ///< a message spells control tokens: Trust::messages would give other ids
};
constexpr auto enum_names(LintKind) {
  return names_in_order<LintKind>("unreadable", "null_field", "refused", "system_absent", "message_absent",
                                  "reasoning_dropped", "empty_mask", "mask_covers_other", "mask_misses",
                                  "no_end", "not_read_back", "control_text");
}

struct LintFault {
  LintKind kind;
  std::string where;  ///< "data.jsonl:12"; "" of the rows as a whole
  std::string text;   ///< what was found, in the row's own words
};

/// What a fault does to training, and what to do; one sentence.
std::string_view advice(LintKind kind);

class Lint {
 public:
  /// Without a tokenizer, ids are not compared.
  Lint(ChatTemplate chat_template, std::optional<Tokenizer> tokenizer);
  /// Looks at one row; `where` names it.
  void add(std::string_view row, const std::string& where);
  /// Closes the rows as a whole. The faults in the order of the rows, then those of all.
  const std::vector<LintFault>& finish();
  int64_t rows() const { return rows_; }
  /// Rows without such text to which Trust::messages gives other ids all the same, since tokens join the
  /// end of a prompt and the beginning of a reply; no fault, because generation does not join them.
  int64_t other_borders() const { return other_borders_; }

 private:
  struct Field {
    int64_t seen = 0, null = 0;
  };
  void fault(LintKind kind, const std::string& where, std::string text);
  void check_texts(const Conversation& c, const Rendered& r, const std::string& where);
  void check_mask(const Conversation& c, const Rendered& r, const std::string& where);
  void check_replies(const Conversation& c, const Rendered& r, const std::string& where);
  void check_ids(const Rendered& r, const std::string& where);

  ChatTemplate template_;
  std::optional<Tokenizer> tokenizer_;
  std::map<std::string, Field> fields_;
  std::vector<LintFault> faults_;
  int64_t rows_ = 0, other_borders_ = 0;
};

}  // namespace ingot::chat
