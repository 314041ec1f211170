// The fuzzer of a run's lines about rollouts on its corpus, and on bytes of it that were changed, in every
// build.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/philox.h"
#include "support/support.h"

#define LLVMFuzzerTestOneInput rollout_line_input
#include "fuzz/rollout_line_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::rollout_corpus_test {

TEST(RolloutCorpus, LinesAreReadOrRefused) {
  const auto run = [](const std::string& text) {
    EXPECT_EQ(rollout_line_input(reinterpret_cast<const uint8_t*>(text.data()), text.size()), 0);
  };
  const Random random(1, RandomPurpose::test, 27);
  uint64_t at = 0;
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(INGOT_SOURCE_DIR "/tests/fuzz/corpus/rollout_line")) {
    const std::string text = read_text(entry.path().string());
    run(text);
    ++files;
    for (int change = 0; change < 200; ++change) {
      std::string changed = text;
      for (uint64_t n = 1 + random.below(at++, 3); n > 0; --n) {
        const size_t where = random.below(at++, changed.size());
        changed[where] = static_cast<char>(random.below(at++, 256));
      }
      run(random.below(at++, 4) == 0 ? changed.substr(0, random.below(at, changed.size())) : changed);
      ++at;
    }
  }
  EXPECT_GE(files, 8);
}

}  // namespace ingot::test::rollout_corpus_test
