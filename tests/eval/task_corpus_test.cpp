// The fuzzer of task files on its corpus, and on bytes of it that were changed, in every build.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/philox.h"
#include "support/support.h"

#define LLVMFuzzerTestOneInput task_input  // each fuzzer's entry has a name of its own in one program
#include "fuzz/task_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::task_corpus_test {

TEST(TaskCorpus, FilesAndChangedFilesAreReadOrRefused) {
  const std::string folder = std::string(INGOT_SOURCE_DIR) + "/tests/fuzz/corpus/task";
  const Random random(1, RandomPurpose::test, 26);
  uint64_t at = 0;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string text = read_text(entry.path().string());
    task_input(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    ++files;
    for (int change = 0; change < 60; ++change) {
      std::string changed = text;
      for (uint64_t n = 1 + random.below(at++, 3); n > 0; --n) {
        const size_t where = random.below(at++, changed.size());
        if (random.below(at++, 2) == 0)
          changed[where] = static_cast<char>(random.below(at, 256));
        else
          changed.insert(where, changed.substr(random.below(at, changed.size()), random.below(at + 1, 24)));
        at += 2;
      }
      task_input(reinterpret_cast<const uint8_t*>(changed.data()), changed.size());
    }
  }
  EXPECT_GE(files, 6);
}

}  // namespace ingot::test::task_corpus_test
