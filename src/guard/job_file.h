// The file that describes a guarded job: its run folder, its command, the rules, and what the guard may do
// without a person. docs/guard.md shows one.
#pragma once
#include <string>
#include <vector>

#include "base/config.h"
#include "guard/decide.h"

namespace ingot::guard {

struct ScopeConfig {
  std::vector<Action> alone{Action::wait,    Action::alert,   Action::save_evidence,
                            Action::stop,    Action::burn_in, Action::exclude_failing,
                            Action::exclude, Action::restart, Action::rewind};
  int64_t nodes_per_day = 2, idle_restarts = 3;
  template <class Visitor>
  void visit(Visitor& v) {
    v("alone", alone, "actions without a person; skip leaves data out, so it is asked for by default");
    v("nodes_per_day", nodes_per_day, "nodes excluded in 24 h at most", up_to(1e6));
    v("idle_restarts", idle_restarts, "restarts in a row that reach no new step, then a person is asked",
      up_to(1e6));
  }
};

struct JobFile {
  std::string run, rules = "recipes/guard-rules.toml", cluster;
  std::vector<std::string> command, options, burn_in;
  double poll = 1, stop_seconds = 120;
  ScopeConfig scope;
  template <class Visitor>
  void visit(Visitor& v) {
    v("run", run, "the run's folder (run.folder of its recipe)");
    v("command", command, "program and arguments that start or resume the run");
    v("rules", rules, "the rule file");
    v("cluster", cluster, "file of command templates, e.g. recipes/guard-slurm.toml; empty: this machine");
    v("options", options, "words for {options} of the cluster's start command");
    v("burn_in", burn_in, "program and arguments that test this machine; empty: ingot burnin");
    v("poll", poll, "between two looks", between(0.01, 3600, "s"));
    v("stop_seconds", stop_seconds, "that the job gets to save before it is killed", up_to(1e6, "s"));
    v("scope", scope, "what the guard may do alone");
  }
  void validate(ConfigErrors& errors) const {
    if (run.empty()) errors.add("run", "the job needs the folder of its run");
    if (command.empty())
      errors.add("command", "the job needs a command: command = [\"ingot\", \"run\", ...]");
    if (cluster.empty() && !options.empty()) errors.add("options", "they are a cluster's, and there is none");
    if (!cluster.empty() && !burn_in.empty()) errors.add("burn_in", "the cluster's templates have their own");
  }
  Scope guard_scope() const {
    return {{scope.alone.begin(), scope.alone.end()}, scope.nodes_per_day, scope.idle_restarts};
  }
};

}  // namespace ingot::guard
