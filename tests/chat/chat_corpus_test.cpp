// The fuzzers of templates, rows of conversations and replies on their corpora, and on bytes of them that
// were changed, in every build.
#include <gtest/gtest.h>

#include "support/corpus.h"

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

TEST(ChatCorpus, TemplatesAreRenderedOrRefused) {
  EXPECT_GE(replay_corpus("chat_template", chat_template_input, 10), 12);
}
TEST(ChatCorpus, RowsAreReadOrRefused) {
  EXPECT_GE(replay_corpus("chat_row", chat_row_input, 20), 12);
}
TEST(ChatCorpus, RepliesAreReadHoweverTheyAreSplit) {
  EXPECT_GE(replay_corpus("chat_reply", chat_reply_input, 60), 25);
}

}  // namespace ingot::test::chat_corpus_test
