// The fuzzer of task files on its corpus, and on bytes of it that were changed, in every build.
#include <gtest/gtest.h>

#include "support/corpus.h"

#define LLVMFuzzerTestOneInput task_input  // each fuzzer's entry has a name of its own in one program
#include "fuzz/task_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::task_corpus_test {

TEST(TaskCorpus, FilesAndChangedFilesAreReadOrRefused) {
  EXPECT_GE(replay_corpus("task", task_input, 60), 6);
}

}  // namespace ingot::test::task_corpus_test
