#include "support/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/philox.h"
#include "support/support.h"

namespace ingot::test {

int replay_corpus(const std::string& name, int (*input)(const uint8_t*, size_t), int changes) {
  const auto run = [&](const std::string& text) {
    EXPECT_EQ(input(reinterpret_cast<const uint8_t*>(text.data()), text.size()), 0);
  };
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(INGOT_SOURCE_DIR "/tests/fuzz/corpus/" + name))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // a folder's order differs between file systems
  const Random random(1, RandomPurpose::test, 27);
  uint64_t at = 0;
  const auto below = [&](size_t bound) { return random.below(at++, bound); };
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.filename().string());
    const std::string text = read_text(file.string());
    run(text);
    for (int change = 0; change < changes && !text.empty(); ++change) {
      std::string changed = text;
      for (uint64_t n = 1 + below(3); n > 0; --n) {
        const size_t where = below(changed.size());
        if (below(2) == 0) {
          changed[where] = static_cast<char>(below(256));
        } else {
          const size_t from = below(changed.size()), count = below(24);
          changed.insert(where, changed.substr(from, count));
        }
      }
      run(below(4) == 0 ? changed.substr(0, below(changed.size())) : changed);
    }
  }
  return static_cast<int>(files.size());
}

}  // namespace ingot::test
