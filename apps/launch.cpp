// `ingot launch -n 4 -- run recipe.toml`: this program as ranks under mpirun. Nothing but a shorter way to write it: what
// stands before the -- goes to mpirun as it is.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "apps/commands.h"
#include "base/error.h"

namespace ingot {
namespace {

struct Options {
  int ranks = 0;
  std::string mpirun;
  bool print = false;
};

void launch(const Options& o, const std::vector<std::string>& for_mpirun, const std::vector<std::string>& for_ranks) {
  if (for_ranks.empty())
    throw Error("ingot launch: no command to launch", "write it after --, e.g. ingot launch -n 4 -- run recipe.toml");
  std::vector<std::string> command{o.mpirun, "-n", std::to_string(o.ranks)};
  command.insert(command.end(), for_mpirun.begin(), for_mpirun.end());
  command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  command.insert(command.end(), for_ranks.begin(), for_ranks.end());
  if (o.print) {
    for (const std::string& word : command) std::cout << word << (&word == &command.back() ? "\n" : " ");
    return;
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw Error(fmt::format("cannot start '{}': {}", o.mpirun, std::strerror(errno)),
              "install the MPI that ingot was built with, or name its mpirun with --mpirun");
}

}  // namespace

void add_launch_command(CLI::App& app, int& code, std::vector<std::string> command) {
  auto o = std::make_shared<Options>();
  o->mpirun = INGOT_MPIRUN;
  CLI::App* c = app.add_subcommand("launch", "start a command as many ranks, with mpirun");
  c->footer(
      "ingot launch -n 4 -- run recipe.toml\n"
      "ingot launch -n 8 --map-by numa --bind-to core -- run recipe.toml     what stands before -- goes to mpirun\n"
      "Under Slurm start ingot with srun itself.");
  c->add_option("-n", o->ranks, "ranks")->required()->check(CLI::PositiveNumber);
  c->add_option("--mpirun", o->mpirun, "the launcher to use")->capture_default_str();
  c->add_flag("--print", o->print, "print the command and stop");
  c->prefix_command();
  c->callback([c, o, command = std::move(command), &code] {
    launch(*o, c->remaining(), command);
    code = 0;
  });
}

}  // namespace ingot
