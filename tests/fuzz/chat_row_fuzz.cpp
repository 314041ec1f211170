// Fuzzes rows of conversations: what is read is written and read back as it was, and renders, encodes and
// lints in the shipped template. tests/chat/chat_corpus_test.cpp replays tests/fuzz/corpus/chat_row.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "chat/lint.h"

namespace {

using namespace ingot;

void one_row(const std::string& row) {
  const bool found = chat::is_conversation(row);
  const chat::Conversation c = chat::read_conversation(row, "row");
  if (!found) std::abort();
  const std::string written = chat::write_conversation(c);
  if (chat::read_conversation(written, "again") != c) std::abort();
  chat::texts_of(c);
  static const chat::ChatTemplate shipped = chat::ChatTemplate::shipped("chatml-think");
  chat::Lint lint(shipped, std::nullopt);
  lint.add(row, "row");
  for (const chat::LintFault& f : lint.finish())
    if (f.text.empty()) std::abort();
  const chat::Rendered r = shipped.render(c);
  for (const chat::ByteSpan& s : r.loss_spans)
    if (shipped.reply_text(r, s).end_of_turn != "<|im_end|>") std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    one_row(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const Error&) {
  }
  return 0;
}
