// Fuzzes parsers of replies. The first byte chooses the style and whether the prompt opened the reasoning,
// the second how the rest, a reply, is split: what comes out must not depend on it.
// tests/chat/chat_corpus_test.cpp replays tests/fuzz/corpus/chat_reply.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "chat/reply_parser.h"

namespace {

using namespace ingot;

const chat::ReplyFormat kFormats[] = {
    {},
    {chat::ToolStyle::hermes, "<think>", "</think>", "<tool_call>", "</tool_call>"},
    {chat::ToolStyle::llama3, "", "", "", ""},
    {chat::ToolStyle::smollm_python, "<think>", "</think>", "<code>", "</code>"},
    {chat::ToolStyle::zaya_xml, "<think>", "</think>", "<zaya_tool_call>", "</zaya_tool_call>"},
    {chat::ToolStyle::none, "<think>", "</think>", "", ""},
    {chat::ToolStyle::deepseek, "<think>", "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
    {chat::ToolStyle::mistral, "[THINK]", "[/THINK]", "[TOOL_CALLS]", ""},
    {chat::ToolStyle::harmony, "<|channel|>analysis<|message|>", "<|end|>", "", "", true},
    {chat::ToolStyle::none, "<|channel|>analysis<|message|>", "<|end|>", "", "", true}};
constexpr std::string_view kTools =
    R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}}])";

/// Its fields as written; a reply need not be UTF-8, so JSON could not hold it.
std::string fields(const chat::Message& m) {
  std::string out = m.content ? "c" + *m.content : "-";
  out += m.reasoning_content ? "\x01r" + *m.reasoning_content : "\x01-";
  for (const chat::ToolCall& call : m.tool_calls) out += "\x01t" + call.name + "\x01" + call.arguments;
  return out;
}

chat::Message joined(const std::vector<chat::ReplyPiece>& pieces) {
  chat::Message m;
  for (const chat::ReplyPiece& p : pieces) {
    if (p.kind == chat::ReplyPiece::Kind::content) m.content = m.content.value_or("") + p.text;
    if (p.kind == chat::ReplyPiece::Kind::reasoning)
      m.reasoning_content = m.reasoning_content.value_or("") + p.text;
    if (p.kind == chat::ReplyPiece::Kind::tool_call) m.tool_calls.push_back(p.call);
  }
  if (!m.content && m.tool_calls.empty()) m.content = "";
  return m;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const chat::ReplyFormat& format = kFormats[(data[0] & 127) % std::size(kFormats)];
  const bool in_thinking = data[0] >= 128;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const chat::Message whole = chat::parse_reply(format, text, in_thinking, kTools);
  chat::ReplyParser parser(format, in_thinking, kTools);
  std::vector<chat::ReplyPiece> pieces;
  const auto take = [&](std::vector<chat::ReplyPiece> more) {
    for (chat::ReplyPiece& p : more) pieces.push_back(std::move(p));
  };
  uint32_t state = data[1];
  for (size_t at = 0; at < text.size();) {
    state = state * 1664525 + 1013904223;
    const size_t n = 1 + (data[1] < 32 ? data[1] : (state >> 24) % (1 + data[1] / 8));
    take(parser.push(text.substr(at, n)));
    at += n;
  }
  take(parser.finish());
  if (fields(parser.message()) != fields(whole) || fields(joined(pieces)) != fields(whole)) std::abort();
  return 0;
}
