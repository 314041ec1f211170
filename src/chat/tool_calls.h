// The tool calls of each style, from the text between their tags. Internal to this folder.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/reply_parser.h"

namespace ingot::chat {

/// The calls in `body`; nothing if it holds no valid call.
std::optional<std::vector<ToolCall>> parse_tool_calls(ToolStyle style, std::string_view body,
                                                      std::string_view tools);

/// The body stops inside of a value, so that a closing tag there is part of the value.
bool is_cut_inside_value(ToolStyle style, std::string_view body);

/// JSON text in the one form that is kept: compact, keys in their order. Nothing if it is not valid.
std::optional<std::string> compact_json(std::string_view text);

}  // namespace ingot::chat
