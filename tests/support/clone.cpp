// See clone.h.
#include "support/clone.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

namespace ingot::test {

namespace fs = std::filesystem;

Clone::Clone() {
  for (const char* name : {"README.md", "bench", "clusters", "recipes", "scripts", "tests", "tools"})
    fs::create_symlink(fs::path(INGOT_SOURCE_DIR) / name, folder_ / name);
  fs::copy(fs::path(INGOT_SOURCE_DIR) / "docs", folder_ / "docs",
           fs::copy_options::recursive);  // a text to learn
  fs::create_directories(folder_ / "build/release");
  fs::create_symlink(INGOT_BINARY, folder_ / "build/release/ingot");
}

std::string Clone::path_line() const {
  std::istringstream page(read_text(INGOT_SOURCE_DIR "/README.md"));
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("export PATH=")) return line;
  ADD_FAILURE() << "README.md has no line that puts ingot on the path";
  return ":";
}

ProcessResult Clone::type(const std::string& lines) const {
  write_text(folder_ / ".typed", "set -euo pipefail\n" + lines + "\n");
  return run_process({"/usr/bin/env", "-i", "-C", path(), "HOME=" + path(), "TERM=dumb", "LANG=C.UTF-8",
                      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                      "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                      "OMPI_MCA_rmaps_base_oversubscribe=1", "bash", ".typed"});
}

std::vector<Fence> fences_of(const std::string& page) {
  std::vector<Fence> fences;
  bool inside = false;
  int number = 0;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.starts_with("```")) {
      if (inside) fences.back().text += line + "\n";
      continue;
    }
    if (!inside) {
      const size_t space = std::min(line.find(' '), line.size());
      fences.push_back(
          {number, line.substr(3, space - 3), line.substr(std::min(space + 1, line.size())), {}});
    }
    inside = !inside;
  }
  return fences;
}

std::vector<std::string> all_commands() {
  // A line of the completion per command:    'tokenizer encode') commands=... or    run) commands=...
  std::istringstream script(run_process({INGOT_BINARY, "completion", "bash"}).output);
  std::vector<std::string> commands;
  for (std::string line; std::getline(script, line);)
    if (const size_t end = line.find(") commands="); line.starts_with("    ") && end != std::string::npos) {
      const std::string word = line.substr(4, end - 4);
      commands.push_back(word[0] == '\'' ? word.substr(1, word.size() - 2) : word);
    }
  EXPECT_GE(commands.size(), 30u);
  return commands;
}

}  // namespace ingot::test
