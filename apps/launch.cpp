// `ingot launch -n 4 -- run recipe.toml`: starts this program on several ranks with mpirun. It places the
// ranks on described machines, and makes Ctrl-C save the run: mpirun would kill the ranks, but forwards
// SIGUSR1 to them.
#include "comm/launch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "base/error.h"
#include "comm/cores.h"
#include "comm/mpirun_messages.h"
#include "comm/topology.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

using Words = std::vector<std::string>;

struct LaunchArguments {
  int ranks = 0;
  std::string mpirun, topology;
  bool print = false;
};

/// The groups of a run's ranks, those with the most communication first; none for other commands.
std::vector<RankRun> runs_of(const Words& command, int ranks) {
  if (command.size() < 2 || command[0] != "run") return {};
  Words overrides;
  for (const std::string& word : command)
    if (word.starts_with("--parallel.")) overrides.push_back(word);
  using enum GridAxis;
  const Grid grid = grid_of(load_recipe(command[1], overrides).parallel, ranks);
  const auto size = [&](std::initializer_list<GridAxis> axes) {
    return static_cast<int>(grid.group(axes, 0).size());
  };
  return {{"tensor", size({tp})}, {"expert", size({ep, etp})}, {"context", size({cp, tp})}};
}

void append(Words& to, const Words& words) {
  to.insert(to.end(), words.begin(), words.end());
}

/// mpirun's options that put rank r on the host of places[r] and leave the binding to the ranks.
Words host_options(const std::string& mpirun, const std::vector<RankPlace>& places) {
  std::string hosts, counted;
  for (size_t first = 0, end = 0; first < places.size(); first = end) {
    for (; end < places.size() && places[end].host == places[first].host; ++end)
      hosts += (end > 0 ? "," : "") + places[end].host;
    counted += fmt::format("{}{}:{}", first > 0 ? "," : "", places[first].host, end - first);
  }
  if (is_open_mpi(mpirun_version(mpirun))) return {"--map-by", "seq", "--bind-to", "none", "--host", hosts};
  return {"-bind-to", "none", "-hosts", counted};
}

Words mpirun_command(const LaunchArguments& o, const Words& for_mpirun, const Words& for_ranks) {
  Words words{o.mpirun, "-n", std::to_string(o.ranks)}, environment;
  if (!o.topology.empty()) {
    const std::vector<RankRun> runs = runs_of(for_ranks, o.ranks);
    const std::vector<RankPlace> places = place_ranks(load_topology(o.topology), o.ranks, runs);
    if (o.print) std::cout << to_text(places, runs);
    append(words, host_options(o.mpirun, places));
    std::string cores;
    for (const RankPlace& p : places) cores += (cores.empty() ? "" : ";") + cores_text(p.cores);
    environment = {"env", "INGOT_CORES=" + cores};
  }
  append(words, for_mpirun);
  append(words, environment);
  words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  append(words, for_ranks);
  return words;
}

volatile sig_atomic_t mpirun_pid = 0;

/// The first asks the ranks to save and end, the second ends them.
void pass_on_signal(int number) {
  static volatile sig_atomic_t asked = 0;
  ::kill(mpirun_pid, asked ? SIGTERM : SIGUSR1);
  if (number != SIGUSR1) asked = 1;
}

/// mpirun gets a process group of its own, which Ctrl-C does not reach.
[[noreturn]] void become_mpirun(const Words& command, const sigset_t& before, int messages) {
  ::dup2(messages, STDERR_FILENO);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::setpgid(0, 0);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  fmt::print(stderr,
             "error: cannot start '{}': {}\nhint: install the MPI that ingot was built with, or name its "
             "mpirun with --mpirun\n",
             command[0], std::strerror(errno));
  ::_exit(1);
}

/// Shows what mpirun and the ranks write, until they end; mpirun's status.
int follow(pid_t pid, int messages) {
  MpirunMessages shown([](std::string_view text) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  });
  int status = 0;
  char text[4096];
  for (bool ended = false;;) {  // a process left behind may keep the pipe open
    pollfd ready{messages, POLLIN, 0};
    const int events = ::poll(&ready, 1, ended ? 0 : 200);
    if (events > 0) {
      const ssize_t count = ::read(messages, text, sizeof text);
      if (count > 0) shown.take({text, static_cast<size_t>(count)});
      if (count > 0 || (count < 0 && errno == EINTR)) continue;
      while (!ended && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      break;
    }
    if (ended) break;
    ended = ::waitpid(pid, &status, WNOHANG) == pid;
  }
  shown.finish();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int start(const Words& command) {
  int messages[2];
  if (::pipe2(messages, O_CLOEXEC) < 0)
    throw Error(fmt::format("cannot start '{}': {}", command[0], std::strerror(errno)));
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);  // until there is a child to forward signals to
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(fmt::format("cannot start '{}': {}", command[0], std::strerror(errno)));
  if (pid == 0) become_mpirun(command, before, messages[1]);
  ::close(messages[1]);
  mpirun_pid = pid;
  struct sigaction action {};
  action.sa_handler = pass_on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::sigaction(number, &action, nullptr);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  const int code = follow(pid, messages[0]);
  ::close(messages[0]);
  return code;
}

/// The command without the program's name, which people write too.
Words without_program(Words command) {
  if (!command.empty() && std::filesystem::path(command[0]).filename() == "ingot")
    command.erase(command.begin());
  return command;
}

int launch(const LaunchArguments& o, const Words& for_mpirun, const Words& for_ranks) {
  if (for_ranks.empty())
    throw UsageError("there is no command to launch",
                     "write it after --: ingot launch -n 4 -- run recipe.toml");
  const Words command = mpirun_command(o, for_mpirun, for_ranks);
  if (!o.print) return start(command);
  for (const std::string& word : command) {
    const bool quote = word.find_first_of("; '") != std::string::npos;
    std::cout << (quote ? "'" + word + "'" : word) << (&word == &command.back() ? "\n" : " ");
  }
  return 0;
}

}  // namespace

void add_launch_command(CLI::App& app, int& code, std::vector<std::string> command) {
  auto o = std::make_shared<LaunchArguments>();
  o->mpirun = default_mpirun();
  CLI::App* c = app.add_subcommand("launch", "start a command on several ranks with mpirun");
  c->footer(
      "Examples:\n"
      "  ingot launch -n 2 -- run recipe.toml\n"
      "  ingot launch -n 2 --oversubscribe -- run recipe.toml   # options before -- go to mpirun\n"
      "  ingot launch -n 2 --topology=cluster.toml --print -- run recipe.toml   # ranks of a group near each "
      "other\n"
      "Ctrl-C saves and ends the run, the second one ends it at once. Under Slurm start ingot with srun "
      "itself.");
  c->add_option("-n,--ranks", o->ranks, "number of ranks")->required()->check(in(between(1, bounds::kRanks)));
  c->add_option("--topology", o->topology,
                "file that describes nodes, NUMA domains and rails; places and binds the ranks");
  c->add_option("--mpirun", o->mpirun, "the launcher to use")->capture_default_str();
  c->add_flag("--print", o->print, "print the command and the placement of the ranks, and exit");
  c->prefix_command();
  c->callback([c, o, command = std::move(command), &code] {
    code = launch(*o, c->remaining(), without_program(command));
  });
}

}  // namespace ingot
