// A model's reply as it streams: reasoning, content and tool calls, told apart while the text arrives. How
// the text is split into pushes never changes what comes out. A parser belongs to one reply and one thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "chat/conversation.h"

namespace ingot::chat {

/// How a family writes tool calls.
enum class ToolStyle : uint8_t {
  none,           ///< no tool calls
  hermes,         ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen, SmolLM3 (XML)
  llama3,         ///< the whole reply is {"name": ..., "parameters": {...}}, also behind <|python_tag|>
  smollm_python,  ///< <code>name(key=value, ...)</code>, one call a line, values as Python literals
  zaya_xml,       ///< <function=NAME><parameter=KEY>value</parameter></function> between tool-call tags
  deepseek,  ///< V3, R1: function<｜tool▁sep｜>NAME and fenced JSON; V3.1: NAME<｜tool▁sep｜>{...}; in tags
  mistral,  ///< [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]NAME[ARGS]{...} a call
  harmony,  ///< GPT-OSS: a message to=functions.NAME whose text is {...}, ended by <|call|>
};
constexpr auto enum_names(ToolStyle) {
  return names_in_order<ToolStyle>("none", "hermes", "llama3", "smollm_python", "zaya_xml", "deepseek",
                                   "mistral", "harmony");
}

struct ReplyFormat {
  ToolStyle tools = ToolStyle::none;
  std::string think_open;   ///< "<think>"; "": the family does not reason
  std::string think_close;  ///< "</think>"
  std::string tool_open;    ///< what opens a call; "" where the style has none
  std::string tool_close;   ///< what closes it; "": calls end with the reply
  /// A reply is messages with headers: <|channel|>CHANNEL<|message|>text<|end|><|start|>assistant...
  /// (GPT-OSS). The channel analysis is reasoning, commentary and final are content. Texts of one kind are
  /// joined by a newline.
  bool channels = false;
  bool operator==(const ReplyFormat&) const = default;
};

struct ReplyPiece {
  enum class Kind : uint8_t { reasoning, content, tool_call };
  Kind kind = Kind::content;
  std::string text;  ///< of reasoning and content; of a call: its text as written
  ToolCall call;     ///< of a tool call, whole; ids are "" (the caller numbers them)
};

class ReplyParser {
 public:
  /// `in_thinking`: the prompt has opened the reasoning (Rendered::ends_in_thinking). `tools`
  /// (Conversation::tools) says which arguments are strings where the style writes them without quotes
  /// (zaya_xml); without it a value that is JSON is read as such.
  explicit ReplyParser(ReplyFormat format, bool in_thinking = false, std::string_view tools = {});
  ~ReplyParser();
  ReplyParser(ReplyParser&&) noexcept;
  ReplyParser& operator=(ReplyParser&&) noexcept;

  /// The pieces that `text` makes certain. Text that may be the beginning of a tag is held back.
  std::vector<ReplyPiece> push(std::string_view text);
  /// The rest. A tool call that is unfinished or no valid call comes as content, as it was written.
  std::vector<ReplyPiece> finish();
  /// All pieces so far as one message of the assistant: the texts of a kind joined. Reasoning without any
  /// text is absent.
  const Message& message() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The whole reply at once.
Message parse_reply(const ReplyFormat& format, std::string_view text, bool in_thinking = false,
                    std::string_view tools = {});

}  // namespace ingot::chat
