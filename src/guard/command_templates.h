// The file that says how a cluster is spoken to: commands with {placeholders}. recipes/guard-slurm.toml is
// Slurm's, docs/guard.md the reference.
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"

namespace ingot::guard {

using Words = std::vector<std::string>;

struct CommandTemplates {
  Words start, find, state, stop, kill, nodes, exclude, burn_in;
  Words waiting, running, ended, down;
  double seconds = 30, every = 5, burn_in_seconds = 600;
  template <class Visitor>
  void visit(Visitor& v) {
    v("start", start, "submits {script}, which runs the job; prints the job's id first in its last line");
    v("find", find, "prints the id of the job that is called {name}, or nothing");
    v("state", state, "prints the state of job {id}, one word");
    v("waiting", waiting, "states of a job that waits for nodes");
    v("running", running, "states of a job that runs");
    v("ended", ended, "states of a job that has ended");
    v("stop", stop, "asks job {id} to save and end");
    v("kill", kill, "ends job {id}");
    v("nodes", nodes, "prints a line \"name state\" of every node; empty: not asked");
    v("down", down, "states of a node that is lost");
    v("exclude", exclude, "takes {node} out of service; empty: starts leave {excluded} out, no more");
    v("burn_in", burn_in,
      "tests {node}: exit code 0 where it is sound, else it says \" tests failed\", as ingot burnin does, or "
      "did "
      "not run; empty: no node fails a test");
    v("seconds", seconds, "that a command may take", between(0.1, 3600, "s"));
    v("every", every, "between two questions for state and nodes", between(0.01, 3600, "s"));
    v("burn_in_seconds", burn_in_seconds,
      "that a test may take; a node that is not through by then has failed", between(0.1, 1e5, "s"));
  }
  void validate(ConfigErrors& errors) const;
  /// All of them, with their keys.
  std::array<std::pair<const char*, const Words*>, 8> commands() const {
    return {{{"start", &start},
             {"find", &find},
             {"state", &state},
             {"stop", &stop},
             {"kill", &kill},
             {"nodes", &nodes},
             {"exclude", &exclude},
             {"burn_in", &burn_in}}};
  }
  /// Whether starts have words for a job's options.
  bool takes_options() const { return std::find(start.begin(), start.end(), "{options}") != start.end(); }
};

}  // namespace ingot::guard
