// How a job is started, watched and ended: commands with {placeholders}, in a file of a cluster's or those of
// this machine. recipes/guard-slurm.toml is Slurm's, docs/guard.md the reference.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/command.h"
#include "base/config.h"

namespace ingot::guard {

struct CommandTemplates {
  Words start, find, state, stop, kill, nodes, exclude, burn_in;
  Words waiting, running, ended, down;
  double seconds = 30, every = 5, burn_in_seconds = 600;
  // What no file says. To the job's program, where it is asked to end: srun and mpirun pass it on to ranks.
  std::string signal = "USR1";
  bool trusted = false;  ///< `state` knows when the last process of a job ends; until then it runs

  template <class Visitor>
  void visit(Visitor& v) {
    v("start", start, "submits {script}, which runs the job; prints the job's id first in its last line");
    v("find", find, "prints the id of the job that is called {name}, or nothing");
    v("state", state, "prints the state of job {id}, one word");
    v("stop", stop, "asks job {id} to save and end");
    v("kill", kill, "ends job {id}");
    v("nodes", nodes, "prints a line \"name state\" of every node; empty: not asked");
    v("exclude", exclude, "takes {node} out of service; empty: starts leave {excluded} out, no more");
    v("burn_in", burn_in,
      "tests {node}: exit code 0 where it is sound, else it says \" tests failed\", as ingot burnin does, or "
      "did not run; empty: no node fails a test");
    v("waiting", waiting, "states of a job that waits for nodes");
    v("running", running, "states of a job that runs");
    v("ended", ended, "states of a job that has ended");
    v("down", down, "states of a node that is lost");
    v("seconds", seconds, "that a command may take", between(0.1, 3600, "s"));
    v("every", every, "between two questions for state and nodes", between(0.01, 3600, "s"));
    v("burn_in_seconds", burn_in_seconds,
      "that a test may take; a node that is not through by then has failed", between(0.1, 1e5, "s"));
  }
  void validate(ConfigErrors& errors) const;
  /// Whether a start can leave nodes out.
  bool can_exclude() const;
};

/// For a job that is a process of this machine, in a session of its own, which outlives the guard. A session
/// holds the lock <run>/guard/job.lock while any process of it lives, so that there is no second one.
/// `burn_in` tests this machine.
CommandTemplates this_machine(Words burn_in);

/// The words of a template. A word that is {options} becomes all of them; a word with a placeholder whose
/// value is empty is left out.
Words expand(const Words& words, const std::map<std::string, std::string>& values, const Words& options = {});

}  // namespace ingot::guard
