// Runs of ranks of which one goes wrong, as fault_program and its relatives make them.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "support/support.h"

namespace ingot::test {

constexpr double kReport = 0.5, kAbort = 2;

struct Outcome {
  std::string output, folder;
  int code = 0;
  double seconds = 0, ended = 0;  ///< how long it took, and when it was over (monotonic_seconds)
  nlohmann::json flight(int rank) const {
    std::ifstream file(folder + "/flight-" + std::to_string(rank) + ".json");
    return file ? nlohmann::json::parse(file) : nlohmann::json();
  }
};

/// Whether a process is there, as more than an entry that nobody has collected.
inline bool lives(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  return std::getline(file, text) && text.substr(text.rfind(')') + 2, 1) != "Z";
}

/// mpirun with these ranks, whose process ids lie in the folder. Afterwards none of them may be there.
inline Outcome run_ranks_of(const std::string& program_and_arguments, int ranks, const std::string& folder) {
  Outcome o;
  o.folder = folder;
  const std::string command = std::string(INGOT_MPI_ENVIRONMENT) + o.folder + " " INGOT_MPIEXEC " -n " +
                              std::to_string(ranks) + " " + program_and_arguments + " 2>&1 </dev/null";
  const double begin = monotonic_seconds();
  FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) o.output.append(buffer, n);
  o.code = WEXITSTATUS(::pclose(pipe));
  o.ended = monotonic_seconds();
  o.seconds = o.ended - begin;
  for (int rank = 0; rank < ranks; ++rank) {
    int pid = 0;
    std::ifstream(o.folder + "/pid-" + std::to_string(rank)) >> pid;
    EXPECT_GT(pid, 0) << o.output;
    for (int tries = 0; lives(pid) && tries < 50; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(lives(pid)) << "rank " << rank << " is still there: " << program_and_arguments;
  }
  return o;
}

}  // namespace ingot::test
