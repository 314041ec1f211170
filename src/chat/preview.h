// Rendered conversations for a person to look at: who wrote what, what is in the loss, and how two templates
// differ. Pure functions.
#pragma once
#include <string>
#include <string_view>

#include "chat/chat_template.h"

namespace ingot::chat {

/// How what is in the loss is shown: in a terminal green, with the template's text dim, and control
/// characters as escapes; elsewhere between the marks below, every other byte as it is.
enum class Shown : uint8_t { colour, marks };
inline constexpr std::string_view kLossBegins = "⟦", kLossEnds = "⟧";

/// The text of a rendering.
std::string preview(const Rendered& rendered, Shown shown);

/// The lines of two renderings, marked, with what only one of them has behind "-" (the first) or "+"; ""
/// where they are equal in text and mask. Lines that both have stand behind a space.
std::string difference(const Rendered& first, const Rendered& second, Shown shown);

/// What a template is beyond what it renders of training rows, a line each: the generation prompt, the same
/// with thinking off, what ends a turn, how tool calls are written.
std::string description(const ChatTemplate& chat_template);
/// The lines of two descriptions, as above; "" where they are equal.
std::string difference(const ChatTemplate& first, const ChatTemplate& second, Shown shown);

}  // namespace ingot::chat
