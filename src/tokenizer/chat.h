// Conversations as text and as ids, in the ChatML layout: <|im_start|>role\ncontent<|im_end|>\n for every
// message.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace ingot {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant", ...
  std::string content;
};

inline constexpr const char* kChatStart = "<|im_start|>";
inline constexpr const char* kChatEnd = "<|im_end|>";

/// The conversation as text; with `open_reply` the beginning of an assistant's message follows.
std::string render_chat(std::span<const ChatMessage> messages, bool open_reply);

struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<bool> from_assistant;  ///< the assistant's content and its end marker, which tuning trains
};

/// The conversation as ids. Only the markers become control tokens; the same characters inside a message are
/// text. The line "role\n" and the content are encoded apart, as in generation, where the content is not
/// known yet. The tokenizer must have both markers as special tokens, else Error.
ChatTokens encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages, bool open_reply);

}  // namespace ingot
