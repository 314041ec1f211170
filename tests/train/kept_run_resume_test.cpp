// A run folder written by an earlier release opens and resumes: tests/fixtures/kept_run was written by commit
// ec22b60 (its README says how) and stopped after step 12 of 24. It must end with the bits of the run that
// was not stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::kept_run_resume_test {

namespace fs = std::filesystem;

/// difference() of two runs, without the comments and new keys in the model's recipe of the left one, which
/// releases add, and without samples.
std::string difference_of_values(const std::string& left, const std::string& right) {
  const std::string reworded = "blob:model differs\n";
  std::string found = difference(left, right);
  const auto lines = [](const std::string& run) {  // of the model's recipe, without comments
    std::istringstream text(
        std::regex_replace(checkpoint_content(run).at("blob:model"), std::regex(R"( *#.*?(\\n|$))"), "\n"));
    std::set<std::string> all;
    for (std::string line; std::getline(text, line);)
      if (line.find("aux_scope = ") == line.npos)
        all.insert(line);  // its default changed; the loss is off here
    return all;
  };
  const auto now = lines(left), then = lines(right);
  const size_t at = found.find(reworded);
  if (at != std::string::npos && std::includes(now.begin(), now.end(), then.begin(), then.end()))
    found.erase(at, reworded.size());
  // Sampling has exponentials of its own since, so texts drawn at a temperature may differ.
  return std::regex_replace(found, std::regex(R"(sample \d+: '[^]*?' and '[^]*?'\n)"), "");
}

ProcessResult run_in(const fs::path& folder, const std::string& command) {
  return run_process({"/bin/bash", "-c", "cd '" + folder.string() + "' && " + command});
}

/// A copy of the fixture's folder, which the run may write to.
void copy_kept_run(const TempDir& dir) {
  fs::copy(fs::path(INGOT_SOURCE_DIR) / "tests/fixtures/kept_run", dir.path(), fs::copy_options::recursive);
}

TEST(KeptRun, ResumesToTheBitsOfTheUndisturbedRun) {
  const TempDir dir;
  copy_kept_run(dir);
  const ProcessResult r = run_in(dir.path(), "'" INGOT_BINARY "' run run/config.toml");
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference_of_values(dir / "run", dir / "expected"), "") << r.output;
}

TEST(KeptRun, ItsRecipeStartsTheSameRunAfresh) {
  const TempDir dir;
  copy_kept_run(dir);
  fs::remove_all(dir / "run");
  const ProcessResult r = run_in(dir.path(), "'" INGOT_BINARY "' run recipe.toml");
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference_of_values(dir / "run", dir / "expected"), "") << r.output;
}

TEST(KeptRun, GeneratesAndReports) {
  const TempDir dir;
  copy_kept_run(dir);
  const ProcessResult r =
      run_in(dir.path(), "'" INGOT_BINARY "' generate --run run --prompt 'the ' && '" INGOT_BINARY
                         "' report run && test -s run/report.html");
  EXPECT_EQ(r.exit_code, 0) << r.output;
}

}  // namespace ingot::test::kept_run_resume_test
