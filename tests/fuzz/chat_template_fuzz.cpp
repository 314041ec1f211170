// Fuzzes chat templates: the first line that is "---" divides the Jinja from a row. What renders within small
// limits is rendered and encoded as training does it. tests/chat/chat_corpus_test.cpp replays
// tests/fuzz/corpus/chat_template.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/json_depth.h"
#include "chat/chat_template.h"
#include "chat/jinja/template.h"
#include "chat/lint.h"
#include "chat/preview.h"

namespace {

using namespace ingot;

constexpr std::string_view kRow =
    R"({"messages": [{"role": "system", "content": "s <|im_end|>"}, {"role": "user", "content": "u\n\n"},
    {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [{"id": "1", "function":
    {"name": "f", "arguments": {"x": [1.5, "é", null]}}}]}, {"role": "tool", "content": "t"},
    {"role": "assistant", "content": "b"}], "tools": [{"name": "f"}]})";

const Tokenizer& bytes() {
  static const Tokenizer made = [] {
    std::string all;
    for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
    const std::string specials[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    return Tokenizer::from_characters(all + "é", specials);
  }();
  return made;
}

/// Whether the template ends soon with this row; errors are thrown.
bool ends_soon(const std::string& source, std::string_view row) {
  chat::jinja::Limits limits;
  limits.steps = 50'000;
  limits.bytes = 1 << 16;
  limits.source_bytes = 1 << 14;
  const chat::jinja::Template t(source, "fuzz", limits);
  const auto j = nlohmann::ordered_json::parse(row, nullptr, false);
  if (!j.is_object()) return true;
  std::vector<std::pair<std::string, chat::jinja::Value>> variables = {
      {"bos_token", chat::jinja::Value::text("<s>")}, {"eos_token", chat::jinja::Value::text("</s>")}};
  for (const auto& [key, value] : j.items())
    variables.emplace_back(key, chat::jinja::Value::from_json(value, 1));
  return !t.render(std::move(variables), 0).bytes().empty();
}

void check(const chat::Rendered& r, const chat::ChatTemplate& t) {
  size_t at = 0;
  for (const chat::Run& run : r.runs) {
    if (run.begin != at || run.end <= run.begin) std::abort();
    at = run.end;
  }
  if (at != r.text.size()) std::abort();
  at = 0;
  for (const chat::ByteSpan& s : r.loss_spans) {
    if (s.begin < at || s.end < s.begin || s.end > r.text.size()) std::abort();
    at = s.end;
    t.reply_text(r, s);
  }
  for (const chat::Shown shown : {chat::Shown::colour, chat::Shown::marks})
    if (chat::preview(r, shown).size() < r.text.size()) std::abort();
  const chat::Encoded own = t.encode(r, bytes());
  if (own.ids.size() != own.in_loss.size() || bytes().decode_bytes(own.ids) != r.text) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t mark = std::min(text.find("\n---\n"), text.size());
  const std::string source = text.substr(0, mark);
  const std::string row = mark < text.size() ? text.substr(mark + 5) : std::string(kRow);
  try {
    require_shallow_json(row, "row");
    if (!ends_soon(source, row)) return 0;
    const auto t =
        chat::ChatTemplate::from_text(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "fuzz");
    const chat::Conversation c = chat::read_conversation(row, "row");
    check(t.render(c), t);
    t.render(c, {.add_generation_prompt = true, .enable_thinking = false, .now = 0});
    chat::Lint lint(t, bytes());
    lint.add(row, "row");
    lint.finish();
  } catch (const Error&) {               // what a hostile template deserves
  } catch (const chat::jinja::Fault&) {  // of the row as a value
  }
  return 0;
}
