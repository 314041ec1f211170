// Conversations: messages with reasoning, tool calls and tool results, and the rows of data sets that hold
// them (TRL's, OpenAI's, ShareGPT's). JSON stands here as text, so that the order of keys is kept and no
// header needs the JSON library.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::chat {

struct ToolCall {
  std::string id;         ///< "" if none
  std::string name;       ///< of the function
  std::string arguments;  ///< JSON text of an object; any other text is handed to templates as a string
  bool operator==(const ToolCall&) const = default;
};

struct Message {
  std::string role;                    ///< "system", "developer", "user", "assistant", "tool", ...
  std::optional<std::string> content;  ///< absent: templates do not see the field
  std::optional<std::string> reasoning_content;
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;  ///< of a tool's result; "" if none
  std::string name;          ///< of the tool or speaker; "" if none
  bool in_loss = true;  ///< an assistant's message is in the loss (OpenAI's "weight": 0 and prompts are not)
  bool operator==(const Message&) const = default;
};

struct Conversation {
  std::vector<Message> messages;
  std::string tools;   ///< JSON text of a list of function schemas; "" if none
  std::string kwargs;  ///< JSON text of an object: the row's own "chat_template_kwargs"; "" if none
  bool operator==(const Conversation&) const = default;
};

/// The message of a reply's text alone.
Message text_message(std::string role, std::string content);

/// Reads one row, a JSON object:
///   TRL        {"messages": [{"role", "content", ...}], "tools": [...]}; {"prompt": [...], "completion":
/// [...]},
///              whose prompt is not in the loss
///   OpenAI     the same with "tool_calls" whose arguments are text, and "weight" 0 or 1 in a message
///   ShareGPT   {"conversations": [{"from": "human", "value": "..."}], "system": "...", "tools": "..."}
/// A content that is a list of text parts becomes their texts joined. Older names of reasoning_content
/// ("thinking", "reasoning") are read. Keys of the row that are none of these are left alone. Errors name
/// `where` (a file and line), the message and the field: an unknown kind of row, a role that is no word, null
/// content of a user, parts that are not text, tools without a name, invalid or deep JSON, no message.
Conversation read_conversation(std::string_view row, const std::string& where);

/// What its messages say, for a tokenizer to learn from.
std::vector<std::string> texts_of(const Conversation& conversation);

/// True if a row with these bytes seems to be a conversation: an object with "messages", "conversations", or
/// a "prompt" that is a list. Bytes that are not JSON are none.
bool is_conversation(std::string_view row);

/// The row in TRL's form, one line: {"messages": [...], "tools": [...]}; tool calls in OpenAI's nesting with
/// their arguments as objects. read_conversation() reads it back as it was.
std::string write_conversation(const Conversation& conversation);

/// The same list from the text of a JSON list of messages, as an OpenAI client sends it.
std::vector<Message> read_messages(std::string_view json_list, const std::string& where);

/// Checks a JSON list of function schemas ({"type": "function", "function": {"name", ...}} or the inner
/// object alone) and returns it as compact text with its keys in their order; Error names tool and field.
std::string checked_tools(std::string_view json_list, const std::string& where);

}  // namespace ingot::chat
