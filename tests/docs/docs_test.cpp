// Documentation that runs: every command of a fenced block of README.md, CONTRIBUTING.md, docs/ and recipes/
// is run page by page, in what looks like a fresh clone with a plain PATH and the line of README that extends
// it. A block that fails fails the test with its output; a block of commands that says neither "sh" nor who
// else runs it is a failure too.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "post/rl/rollout.h"
#include "support/clone.h"
#include "support/support.h"

namespace ingot::docs_test {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  return test::read_text(path.string());
}

std::vector<fs::path> pages() {
  const fs::path source = INGOT_SOURCE_DIR;
  std::vector<fs::path> found = {source / "README.md", source / "CONTRIBUTING.md"};
  for (const char* folder : {"docs", "recipes"})
    for (const auto& entry : fs::directory_iterator(source / folder))
      if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

/// Whether a note of a block says that this test leaves it to another, or to a machine that has what it
/// needs: "run-by=FILE", "needs=mpi" (here where there is one), "needs=peers" (PyTorch and others),
/// "needs=slurm".
bool left_out(const test::Fence& fence) {
  if (fence.note.empty()) return false;
  if (fence.note == "needs=mpi") return std::system("command -v mpirun >/dev/null") != 0;
  if (fence.note.starts_with("run-by=")) {
    EXPECT_TRUE(fs::exists(fs::path(INGOT_SOURCE_DIR) / fence.note.substr(7))) << fence.note;
    return true;
  }
  EXPECT_TRUE(fence.note == "needs=peers" || fence.note == "needs=slurm") << "unknown note: " << fence.note;
  return true;
}

bool is_command(const std::string& line) {
  for (const char* word :
       {"ingot ", "build/", "scripts/", "bench/", "tools/", "cmake ", "ctest ", "sbatch ", ".ci/", "cpack "})
    if (line.starts_with(word) || line.starts_with(std::string("$ ") + word)) return true;
  return false;
}

TEST(Docs, CommandsRun) {
  int scripts = 0;
  for (const fs::path& page : pages()) {
    std::string script;
    for (const test::Fence& fence : test::fences_of(read(page))) {
      if (fence.language == "sh" && !left_out(fence)) script += fence.text;
      std::istringstream lines(fence.text);
      for (std::string line; fence.language.empty() && std::getline(lines, line);)
        EXPECT_FALSE(is_command(line))
            << page << ":" << fence.line << ": not marked as sh, so nobody runs it: " << line;
    }
    if (script.empty()) continue;
    ++scripts;
    const test::Clone clone;
    const test::ProcessResult r = clone.type(clone.path_line() + "\n" + script);
    EXPECT_EQ(r.exit_code, 0) << page << "\n" << r.output;
  }
  EXPECT_GE(scripts, 8);
}

// The tutorial shows the recipe that it runs.
TEST(Docs, TheTutorialShowsItsRecipe) {
  std::string shown;
  for (const test::Fence& fence : test::fences_of(read(fs::path(INGOT_SOURCE_DIR) / "docs/tutorial.md")))
    if (fence.language == "toml") shown = fence.text;
  const std::string file = read(fs::path(INGOT_SOURCE_DIR) / "recipes/first.toml");
  EXPECT_EQ(shown, file.substr(file.find("[run]")));
}

/// Every page of docs/ can be reached from the first page.
TEST(Docs, ReadmeLinksEveryPage) {
  const std::string readme = read(fs::path(INGOT_SOURCE_DIR) / "README.md");
  for (const fs::path& page : pages())
    if (page.parent_path().filename() == "docs") {
      EXPECT_NE(readme.find("(docs/" + page.filename().string() + ")"), std::string::npos) << page;
    }
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
  for (const char* page : {"extend.md", "extend-op.md", "extend-layer.md", "extend-objective.md",
                           "extend-optimizer.md", "extend-data.md"})
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
      << "grep -q \"no optimizer 'lion' is registered; there are adamw, ademamix, muon\" refused\n"
      << "! installed/bin/ingot run recipe.toml '--model.custom_attention=\"\"' "
         "--optimizer.matrices=adamw >refused 2>&1\n"
      << "grep -q \"'focal' is no objective; there are: cross_entropy\" refused\n";
  const std::string command = "bash '" + (dir / "script.sh") + "' >'" + (dir / "output") + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read(dir / "output");
}

/// What a command's help prints as examples: the lines below "Examples", up to one that is not indented.
std::vector<std::string> examples_of(const std::string& help) {
  std::vector<std::string> examples;
  bool inside = false;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Examples"))
      inside = true;
    else if (inside && line.starts_with("  "))
      examples.push_back(line.substr(2));
    else
      inside = false;
  }
  return examples;
}

/// The files that the examples name.
void make_what_examples_name(const test::Clone& clone) {
  std::string recipe = read(fs::path(INGOT_SOURCE_DIR) / "recipes/first.toml");
  const size_t steps = recipe.find("steps = 60");
  ASSERT_NE(steps, std::string::npos);
  recipe.replace(steps, 10, "steps = 4");
  recipe.replace(recipe.find("runs/first"), 10, "runs/mine");
  test::write_text(clone / "recipe.toml", recipe);
  test::write_text(clone / "text.txt", "A river runs under a bridge.\n\nA stone is a stone.\n");
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += fmt::format("{{\"text\": \"River {} runs under a bridge.\"}}\n", i);
  test::write_text(clone / "data.jsonl", rows);
  test::write_text(clone / "chat.jsonl",
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"Is 7 odd?\"}, "
                   "{\"role\": \"assistant\", \"content\": \"Yes.\"}]}\n");
  RolloutLine reply;
  reply.step = 40, reply.environment = "sort", reply.problem = "sort/1/9@3", reply.prompt = "sort 3 1 2";
  reply.text = "1 2 3", reply.tokens = {"1 2", " 3"}, reply.logprob = {-0.1F, -4.0F},
  reply.finish = "end_token";
  fs::create_directories(clone / "runs/reasoner");
  test::write_text(clone / "runs/reasoner/rollouts.jsonl", to_json_line(reply) + "\n");
  test::write_text(clone / "cluster.toml", "[[nodes]]\nhosts = [\"localhost\"]\ndomains = [\"0\", \"0\"]\n");
}

// In a fresh clone, by the name by which the program is called there.
TEST(Docs, ExamplesOfHelpRun) {
  const test::Clone clone;
  make_what_examples_name(clone);
  ASSERT_EQ(
      clone.type("build/release/ingot run recipe.toml\nbuild/release/ingot export runs/mine hf").exit_code,
      0);
  const bool mpi = std::system("command -v mpirun >/dev/null") == 0;
  int count = 0;
  for (const std::string& command : test::all_commands()) {
    const test::ProcessResult help = clone.type("build/release/ingot " + command + " --help");
    EXPECT_EQ(help.exit_code, 0) << command << "\n" << help.output;
    EXPECT_EQ(help.output.find("  ingot "), std::string::npos) << "not as typed here:\n" << help.output;
    for (const std::string& example : examples_of(help.output)) {
      if (command.starts_with("guard")) continue;  // needs a job: docs/guard.md makes one, and runs them
      if (command == "burnin") continue;  // judges a busy machine: tests/measure/burn_in_runs_test.cpp
      if (command == "serve") continue;   // answers until Ctrl-C: tests/apps/serve_runs_test.cpp
      if (command == "pairs") continue;   // needs models that reply: tests/post/make_pairs_test.cpp
      if (!mpi && example.find(" launch ") != std::string::npos) continue;
      ++count;
      const test::ProcessResult r = clone.type(example);
      EXPECT_EQ(r.exit_code, 0) << "example of `ingot " << command << "`: " << example << "\n" << r.output;
    }
  }
  EXPECT_GE(count, 20);
}

}  // namespace ingot::docs_test
