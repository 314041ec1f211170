// The program started as ranks: `ingot launch` reaches every rank, and rank 0 alone prints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot {
namespace {

test::ProcessResult launch(const test::TempDir& folder, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"/bin/sh", "-c",         INGOT_MPI_ENVIRONMENT + folder.path() + " \"$@\"",
                                   "sh",      INGOT_BINARY, "launch"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return test::run_process(command);
}

TEST(MpiLaunch, BenchCommMeasuresProcesses) {
  const test::TempDir folder;
  const auto r = launch(folder, {"-n", "3", "--", "bench", "comm", "--ranks", "2,3", "--smallest", "4KiB",
                                 "--largest", "1MiB", "--seconds", "0.001", "--json", folder / "comm.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(r.output.find("slowest first:"), r.output.rfind("slowest first:")) << r.output;
  const auto json = nlohmann::json::parse(real_file_system().read(folder / "comm.json"));
  EXPECT_EQ(json["backend"].get<std::string>().find("3 processes, mpirun"), 0u);
  EXPECT_EQ(json["collectives"].size(), 2u * (5 * 5 + 1));
  EXPECT_EQ(json["speeds"].size(), 3u);
  EXPECT_EQ(json["messages"].size(), 3u * 2 * (1 + 5));
  EXPECT_EQ(json["pairs"].size(), 3u * 2);
}

TEST(MpiLaunch, BenchClusterWritesTheLinksBetweenProcesses) {
  const test::TempDir folder;
  const auto r = launch(folder, {"-n", "2", "--", "bench", "cluster", "--out", folder / "here.toml",
                                 "--sizes=32", "--depths=32", "--lengths=32", "--vocab=64", "--trials=1",
                                 "--seconds=1e-4", "--comm-seconds=1e-3", "--largest=64KiB", "--file=1MiB",
                                 "--io-seconds=0.005", "--folder", folder.path()});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const std::string file = test::read_text(folder / "here.toml");
  for (const char* part : {"devices = 2", "kind = \"shared_memory\"", "collective = \"all_reduce\""})
    EXPECT_NE(file.find(part), std::string::npos) << part << "\n" << file;
  EXPECT_EQ(r.output.find("next:"), r.output.rfind("next:")) << r.output;
}

TEST(MpiLaunch, AnErrorOfTheProgramNamesTheRank) {
  const test::TempDir folder;
  const auto r = launch(folder, {"-n", "2", "--", "bench", "comm", "--ranks", "7"});
  EXPECT_NE(r.exit_code, 0);
  EXPECT_NE(r.output.find("error on rank "), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("--ranks=7: this world has 2 ranks"), std::string::npos) << r.output;
}

TEST(MpiLaunch, TheNameOfTheProgramMayBeWrittenAndErrorsAreShownOnce) {
  const test::TempDir folder;
  const auto named = launch(folder, {"-n", "2", "--", "ingot", "model", "gpt2"});
  EXPECT_EQ(named.exit_code, 0) << named.output;
  const auto r = launch(folder, {"-n", "2", "--", "ingot", "run", folder / "none.toml"});
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_EQ(r.output.find("error: "), r.output.rfind("error: ")) << r.output;
  EXPECT_EQ(r.output.find("-----"), std::string::npos) << "mpirun's own words\n" << r.output;
}

TEST(MpiLaunch, RanksArePlacedOnDescribedMachines) {
  const test::TempDir folder;
  test::write_text(folder / "here.toml",
                   "[[nodes]]\nhosts = [\"localhost\"]\ndomains = [\"0\"]\nranks_per_domain = 1\n");
  test::write_text(folder / "cluster.toml",
                   "[[nodes]]\nhosts = [\"node[1-2]\"]\ndomains = [\"0-2\"]\nranks_per_domain = 3\n");
  test::write_text(folder / "recipe.toml",
                   test::tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
  const auto printed = launch(folder, {"-n", "4", "--topology", folder / "cluster.toml", "--print", "--",
                                       "run", folder / "recipe.toml", "--parallel.expert=2", "--fresh"});
  EXPECT_EQ(printed.exit_code, 0) << printed.output;
  EXPECT_NE(printed.output.find("expert groups of 2 ranks: 2, 2 in one NUMA domain, 2 in one node"),
            std::string::npos)
      << printed.output;
  EXPECT_NE(printed.output.find("'INGOT_CORES=0;1;0;1'"), std::string::npos) << printed.output;
  EXPECT_TRUE(printed.output.find("node1,node1,node2,node2") != std::string::npos ||
              printed.output.find("node1:2,node2:2") != std::string::npos)
      << printed.output;
  const auto full = launch(folder, {"-n", "2", "--topology", folder / "here.toml", "--", "bench", "comm"});
  EXPECT_NE(full.output.find("the topology has 1 places for ranks, 2 are asked for"), std::string::npos)
      << full.output;
  test::write_text(folder / "here.toml", "[[nodes]]\nhosts = [\"localhost\"]\ndomains = [\"0\", \"0\"]\n");
  const auto run = launch(folder, {"-n", "2", "--topology", folder / "here.toml", "--", "bench", "comm",
                                   "--smallest", "4KiB", "--largest", "4KiB", "--seconds", "0.001"});
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

TEST(MpiLaunch, NumbersOfTorchrunThatDisagreeAreRefused) {
  const test::TempDir folder;
  const auto r =
      test::run_process({"/bin/sh", "-c", INGOT_MPI_ENVIRONMENT + folder.path() + " \"$@\"", "sh", "env",
                         "WORLD_SIZE=3", INGOT_BINARY, "launch", "-n", "2", "--", "bench", "comm"});
  EXPECT_NE(r.exit_code, 0);
  EXPECT_NE(r.output.find("=2, but WORLD_SIZE=3"), std::string::npos) << r.output;
}

}  // namespace
}  // namespace ingot
