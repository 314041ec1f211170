// Rows of preference data as two conversations of one beginning: what was chosen and what was rejected.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "chat/conversation.h"

namespace ingot::chat {

/// Of messages of the common beginning nothing is in the loss. One side is absent where a row says of one
/// answer whether it is good (KTO).
struct PreferenceRow {
  std::optional<Conversation> chosen, rejected;
  /// The answers are plain texts behind a plain prompt: each conversation has a user's and an assistant's
  /// message with them, which no template is to render.
  bool plain = false;
};

/// Reads one row, a JSON object, in TRL's forms:
///   {"prompt": [messages], "chosen": [messages], "rejected": [messages]}
///   {"chosen": [messages], "rejected": [messages]}, which begin alike; what they share is the prompt
///   {"prompt": [messages], "completion": [messages], "label": true}
///   the first and the third with strings in place of lists: plain
/// with "tools", "system" and "chat_template_kwargs" as read_conversation() takes them. Errors name `where`:
/// an unknown form, answers that are equal or empty, no common beginning, what read_conversation() refuses.
PreferenceRow read_preference(std::string_view row, const std::string& where);

/// True if a row with these bytes seems to be one: an object with "chosen" and "rejected", or with "prompt",
/// "completion" and a "label" that is true or false.
bool is_preference(std::string_view row);

}  // namespace ingot::chat
