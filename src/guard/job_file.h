// The file that describes a guarded job: its run folder, its command, the rules, and what the guard may do
// without a person. docs/guard.md shows one. `ingot guard check` says what it means.
#pragma once
#include <string>
#include <vector>

#include "base/config.h"
#include "guard/decide.h"

namespace ingot::guard {

struct JobFile {
  std::string run, rules = "recipes/guard-rules.toml", cluster;
  std::vector<std::string> command, options, burn_in;
  double poll = 1, stop_seconds = 120;
  Scope scope;
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
  void validate(ConfigErrors& errors) const;
};

/// What the file at `path`, of a job or of rules, describes: of each rule its sign, the facts that it looks
/// at, when it acts, its actions, its limit and what comes beyond; of a job's also for which of its actions a
/// person is asked. Error with every defect.
std::string check_file(const std::string& path);

}  // namespace ingot::guard
