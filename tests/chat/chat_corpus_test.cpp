// The fuzzers of templates, rows of conversations and replies on their corpora, and on bytes of them that
// were changed, in every build.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/philox.h"
#include "support/support.h"

// Each fuzzer has an entry of its own name in one program.
#define LLVMFuzzerTestOneInput chat_template_input
#include "fuzz/chat_template_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput chat_row_input
#include "fuzz/chat_row_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput chat_reply_input
#include "fuzz/chat_reply_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::chat_corpus_test {

/// Runs the files of a corpus, each also with some bytes changed, doubled or cut off; returns how many there
/// are.
int replay(const std::string& name, int (*input)(const uint8_t*, size_t), int changes) {
  const auto run = [&](const std::string& text) {
    EXPECT_EQ(input(reinterpret_cast<const uint8_t*>(text.data()), text.size()), 0);
  };
  const Random random(1, RandomPurpose::test, 27);
  uint64_t at = 0;
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(INGOT_SOURCE_DIR "/tests/fuzz/corpus/" + name)) {
    const std::string text = read_text(entry.path().string());
    run(text);
    ++files;
    for (int change = 0; change < changes && !text.empty(); ++change) {
      std::string changed = text;
      for (uint64_t n = 1 + random.below(at++, 3); n > 0; --n) {
        const size_t where = random.below(at++, changed.size());
        if (random.below(at++, 2) == 0)
          changed[where] = static_cast<char>(random.below(at, 256));
        else
          changed.insert(where, changed.substr(random.below(at, changed.size()), random.below(at + 1, 24)));
        at += 2;
      }
      run(random.below(at++, 4) == 0 ? changed.substr(0, random.below(at, changed.size())) : changed);
      ++at;
    }
  }
  return files;
}

TEST(ChatCorpus, TemplatesAreRenderedOrRefused) {
  EXPECT_GE(replay("chat_template", chat_template_input, 10), 12);
}
TEST(ChatCorpus, RowsAreReadOrRefused) {
  EXPECT_GE(replay("chat_row", chat_row_input, 20), 12);
}
TEST(ChatCorpus, RepliesAreReadHoweverTheyAreSplit) {
  EXPECT_GE(replay("chat_reply", chat_reply_input, 60), 12);
}

}  // namespace ingot::test::chat_corpus_test
