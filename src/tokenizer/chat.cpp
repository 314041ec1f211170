// See chat.h.
#include "tokenizer/chat.h"

#include "base/error.h"

namespace ingot {
namespace {

constexpr const char* kAssistant = "assistant";

int32_t marker(const Tokenizer& tokenizer, const char* content) {
  const auto id = tokenizer.special_id(content);
  if (!id)
    throw Error(fmt::format("the tokenizer has no special token '{}', which chat needs", content),
                "train the tokenizer with it among the special tokens");
  return *id;
}

}  // namespace

std::string render_chat(std::span<const ChatMessage> messages, bool open_reply) {
  std::string out;
  for (const ChatMessage& m : messages)
    out += std::string(kChatStart) + m.role + "\n" + m.content + kChatEnd + "\n";
  if (open_reply) out += std::string(kChatStart) + kAssistant + "\n";
  return out;
}

ChatTokens encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages, bool open_reply) {
  const int32_t start = marker(tokenizer, kChatStart);
  const int32_t end = marker(tokenizer, kChatEnd);
  ChatTokens out;
  const auto open = [&](const std::string& role) {
    out.ids.push_back(start);
    tokenizer.encode_to(role + "\n", {}, out.ids);
    out.from_assistant.resize(out.ids.size(), false);
  };
  for (const ChatMessage& m : messages) {
    open(m.role);
    tokenizer.encode_to(m.content, {}, out.ids);
    out.ids.push_back(end);
    out.from_assistant.resize(out.ids.size(), m.role == kAssistant);
    tokenizer.encode_to("\n", {}, out.ids);
    out.from_assistant.resize(out.ids.size(), false);
  }
  if (open_reply) open(kAssistant);
  return out;
}

}  // namespace ingot
