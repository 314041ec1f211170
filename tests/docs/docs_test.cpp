// Documentation that runs: every ```sh block of README.md and docs/*.md is executed, file by file, in a
// folder that holds the manual, the recipes and the benchmarks, with `ingot` on the path. A block that fails
// fails the test with its output.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/support.h"

namespace ingot::docs_test {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The ```sh blocks of a page, joined: later blocks use what earlier ones made.
std::string script_of(const std::string& page) {
  std::string script;
  for (size_t at = 0; (at = page.find("\n```sh\n", at)) != std::string::npos;) {
    const size_t begin = at + 7, end = page.find("\n```", begin);
    if (end == std::string::npos) break;
    script += page.substr(begin, end - begin) + "\n";
    at = end + 4;
  }
  return script;
}

TEST(Docs, CommandsRun) {
  const fs::path source = INGOT_SOURCE_DIR;
  std::vector<fs::path> pages = {source / "README.md", source / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(source / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  int scripts = 0;
  for (const fs::path& page : pages) {
    const std::string script = script_of(read(page));
    if (script.empty()) continue;
    ++scripts;
    const test::TempDir dir;
    for (const char* folder : {"bench", "docs", "recipes"})
      fs::create_directory_symlink(source / folder, fs::path(dir.path()) / folder);
    std::ofstream(dir / "script.sh") << "set -euo pipefail\ncd '" << dir.path() << "'\nexport PATH='"
                                     << fs::path(INGOT_BINARY).parent_path().string() << "':$PATH\n"
                                     << script;
    const std::string command = "bash '" + (dir / "script.sh") + "' >'" + (dir / "output") + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << page << "\n" << read(dir / "output");
  }
  EXPECT_GE(scripts, 1) << "no page has a sh block";
}

/// Writes the ```cpp, ```cmake and ```toml blocks of a page that begin with a comment "// NAME" or "# NAME"
/// to files of these names.
void write_blocks(const std::string& page, const fs::path& folder) {
  for (const std::string language : {"cpp", "cmake", "toml"})
    for (size_t at = 0; (at = page.find("\n```" + language + "\n", at)) != std::string::npos;) {
      const size_t begin = at + 5 + language.size(), end = page.find("\n```", begin);
      const std::string block = page.substr(begin, end + 1 - begin);
      const size_t name = block.find(' ') + 1;
      std::ofstream(folder / block.substr(name, block.find_first_of(":\n", name) - name)) << block;
      at = end;
    }
}

/// Builds the project on the pages about extensions against what `cmake --install` installs.
TEST(Docs, ExtensionsBuildAgainstTheInstalledLibrary) {
#ifdef INGOT_SANITIZED
  GTEST_SKIP() << "a sanitized library needs its sanitizer in every program";
#endif
  const test::TempDir dir;
  for (const char* page :
       {"extend.md", "extend-op.md", "extend-layer.md", "extend-objective.md", "extend-data.md"})
    write_blocks(read(fs::path(INGOT_SOURCE_DIR) / "docs" / page), dir.path());
  std::ofstream(dir / "sayings.fortune")
      << "a stone is a stone\n%\na river runs under a bridge\n%\n%\na sea carries salt over a hill\n";
  std::ofstream(dir / "script.sh")
      << "set -euo pipefail\ncd '" << dir.path() << "'\n"
      << "cmake --install '" INGOT_BUILD_DIR "' --prefix \"$PWD/installed\" >/dev/null\n"
      << "installed/bin/ingot --version\n"
      << "cmake -G '" INGOT_GENERATOR
         "' -S . -B build -DCMAKE_PREFIX_PATH=\"$PWD/installed\" "
         "-DCMAKE_CXX_COMPILER='" INGOT_CXX "'\n"
      << "cmake --build build -j 2\nbuild/gate_check\nbuild/mine recipe.toml\n"
      << "! installed/bin/ingot run recipe.toml >refused 2>&1\n"
      << "grep -q \"no attention 'gated' is registered\" refused\n"
      << "! installed/bin/ingot run recipe.toml '--model.custom_attention=\"\"' >refused 2>&1\n"
      << "grep -q \"'focal' is no objective; there are: cross_entropy\" refused\n";
  const std::string command = "bash '" + (dir / "script.sh") + "' >'" + (dir / "output") + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read(dir / "output");
}

TEST(Docs, HelpIsThere) {
  for (const char* command : {"",          "run",        "generate",      "chat",      "model",   "data",
                              "tokenizer", "checkpoint", "report",        "diff",      "kernels", "debug",
                              "import",    "export",     "finetune",      "average",   "upcycle", "doctor",
                              "bench",     "bench comm", "bench machine", "bench step"}) {
    const std::string line = std::string("'") + INGOT_BINARY + "' " + command + " --help >/dev/null 2>&1";
    EXPECT_EQ(std::system(line.c_str()), 0) << command;
  }
}

}  // namespace ingot::docs_test
