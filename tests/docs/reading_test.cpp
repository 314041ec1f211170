// docs/reading.md is true of the tree: the files that it lists exist and contain the names listed beside
// them.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "support/support.h"

namespace ingot::reading_test {

namespace fs = std::filesystem;

TEST(Reading, FilesAndNamesExist) {
  const fs::path source = INGOT_SOURCE_DIR;
  std::istringstream page(test::read_text((source / "docs/reading.md").string()));
  const std::regex row(R"(\| `([^`]+)` \| ([^|]+) \|.*)"), name("`([^`]+)`");
  int files = 0;
  for (std::string line; std::getline(page, line);) {
    std::smatch cells;
    if (!std::regex_match(line, cells, row)) continue;
    ++files;
    ASSERT_TRUE(fs::exists(source / cells[1].str())) << cells[1];
    const std::string text = test::read_text((source / cells[1].str()).string()), names = cells[2];
    for (auto it = std::sregex_iterator(names.begin(), names.end(), name); it != std::sregex_iterator(); ++it)
      EXPECT_NE(text.find((*it)[1].str()), std::string::npos) << cells[1] << " has no " << (*it)[1];
  }
  EXPECT_GE(files, 35);
}

}  // namespace ingot::reading_test
