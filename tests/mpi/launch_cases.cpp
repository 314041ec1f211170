// The program started as ranks: `ingot launch` reaches every rank, and rank 0 alone prints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot {
namespace {

test::ProcessResult launch(const test::TempDir& folder, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"/bin/sh", "-c", INGOT_MPI_ENVIRONMENT + folder.path() + " \"$@\"", "sh", INGOT_BINARY, "launch"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return test::run_process(command);
}

TEST(MpiLaunch, BenchCommMeasuresProcesses) {
  const test::TempDir folder;
  const auto r = launch(folder, {"-n", "3", "--", "bench", "comm", "--ranks", "2,3", "--smallest", "4KiB", "--largest", "1MiB", "--seconds",
                                 "0.001", "--json", folder / "comm.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(r.output.find("slowest first:"), r.output.rfind("slowest first:")) << r.output;
  const auto json = nlohmann::json::parse(real_file_system().read(folder / "comm.json"));
  EXPECT_EQ(json["backend"].get<std::string>().find("3 processes, mpirun"), 0u);
  EXPECT_EQ(json["collectives"].size(), 2u * (5 * 5 + 1));
  EXPECT_EQ(json["speeds"].size(), 3u);
}

TEST(MpiLaunch, AnErrorOfTheProgramNamesTheRank) {
  const test::TempDir folder;
  const auto r = launch(folder, {"-n", "2", "--", "bench", "comm", "--ranks", "7"});
  EXPECT_NE(r.exit_code, 0);
  EXPECT_NE(r.output.find("error on rank "), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("--ranks=7: this world has 2 ranks"), std::string::npos) << r.output;
}

}  // namespace
}  // namespace ingot
