// See support.h.
#include "support/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace ingot::test {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ingot-test-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string fixture(const std::string& name) {
  return std::string(INGOT_SOURCE_DIR) + "/tests/fixtures/" + name;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
}

std::string optional_data(const std::string& name) {
  const char* folder = std::getenv("INGOT_DATA");
  const std::string path = (folder ? std::string(folder) : INGOT_SOURCE_DIR "/../shared/data") + "/" + name;
  return std::filesystem::exists(path) ? path : "";
}

double relative_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double worst = 0, scale = 1e-300;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    worst = std::max(worst, std::abs(found[i] - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / scale;
}

void write_text(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace ingot::test
