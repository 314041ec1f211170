// See support.h.
#include "support/support.h"

#include <cstdlib>
#include <filesystem>

namespace ingot::test {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ingot-test-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string fixture(const std::string& name) { return std::string(INGOT_SOURCE_DIR) + "/tests/fixtures/" + name; }

std::string optional_data(const std::string& name) {
  const char* folder = std::getenv("INGOT_DATA");
  const std::string path = (folder ? std::string(folder) : INGOT_SOURCE_DIR "/../shared/data") + "/" + name;
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace ingot::test
