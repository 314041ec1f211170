// Replays the fuzzer's corpus, and every file of it with bytes changed and cut: an Error or a tokenizer,
// never a crash, and what was encoded comes back.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/philox.h"
#include "support/support.h"

#define LLVMFuzzerTestOneInput tokenizer_input  // each fuzzer's entry has a name of its own in one program
#include "fuzz/tokenizer_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::tokenizer_fuzz_test {

int run(const std::string& input) {
  return tokenizer_input(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

TEST(TokenizerFuzz, TheCorpusAndItsNeighboursAreHandled) {
  const std::string folder = std::string(INGOT_SOURCE_DIR) + "/tests/fuzz/corpus/tokenizer";
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string input = read_text(entry.path());
    ++files;
    EXPECT_EQ(run(input), 0);
    for (uint64_t n = 0; n < 60; ++n) {
      const Random random(n, RandomPurpose::test, 3);
      std::string changed = input.substr(0, n % 3 == 0 ? 1 + random.bits(0) % input.size() : input.size());
      for (uint64_t i = 0; i < 1 + n % 4 && changed.size() > 1; ++i)
        changed[1 + random.bits(2 * i + 1) % (changed.size() - 1)] =
            static_cast<char>(random.bits(2 * i + 2));
      EXPECT_EQ(run(changed), 0);
    }
  }
  EXPECT_GE(files, 10);
}

}  // namespace ingot::test::tokenizer_fuzz_test
