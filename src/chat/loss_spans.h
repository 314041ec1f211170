// Which bytes of a rendered conversation the assistant wrote, for any template. Internal to this folder.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"

namespace ingot::chat {

/// What stands around an assistant's turn.
struct TurnBorders {
  std::string opening;  ///< the generation prompt of this conversation, behind which generation starts
  std::string header;   ///< the part of it that also opens turns of the past; "" if it is not known
  std::vector<std::string> ends;  ///< control texts that end a turn
  /// What the template writes last in a prompt for this message; nothing if it refuses that prompt.
  std::function<std::optional<std::string>(int32_t message)> prompt_tail;
};

/// The spans of all assistants' messages in the loss. A turn is everything between the first and the last
/// byte that its message wrote, from the end of the opening before it (else from its first byte) to the end
/// of the turn's end behind it (else to its last byte). Where `generated` spans are given ({% generation %}),
/// they count instead.
std::vector<ByteSpan> loss_spans(const Conversation& conversation, const Rendered& rendered,
                                 const TurnBorders& borders, const std::vector<ByteSpan>& generated);

}  // namespace ingot::chat
