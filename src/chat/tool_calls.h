// The tool calls of each style, from the text between their tags. Internal to this folder.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/reply_parser.h"

namespace ingot::chat {

/// What the header of a message in GPT-OSS's format says: [<|start|>assistant][ to=WHOM]<|channel|>CHANNEL
/// [to=WHOM][<|constrain|>json]<|message|>.
struct ChannelHeader {
  std::string_view channel;  ///< "analysis", "commentary", "final"; "" if not said
  std::string_view to;       ///< "functions.NAME" of a call; "" if not said
  bool assistants = true;    ///< no other role is named
};
/// `header` without its <|message|>.
ChannelHeader read_channel_header(std::string_view header);

/// The calls in `body`, which is what stands between the tags, and where the style has no closing tag, the
/// opening tag with all that follows (mistral) or a message with its header (harmony). Nothing if it holds no
/// valid call.
std::optional<std::vector<ToolCall>> parse_tool_calls(ToolStyle style, std::string_view body,
                                                      std::string_view tools);

/// The body stops inside of a value, so that a closing tag there is part of the value.
bool is_cut_inside_value(ToolStyle style, std::string_view body);

/// JSON text in the one form that is kept: compact, keys in their order. Nothing if it is not valid.
std::optional<std::string> compact_json(std::string_view text);

}  // namespace ingot::chat
