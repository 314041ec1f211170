// The file that says how a cluster is spoken to: commands with {placeholders}. recipes/guard-slurm.toml is
// Slurm's, docs/guard.md the reference.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/command.h"
#include "base/config.h"

namespace ingot::guard {

struct CommandTemplates {
  Words start, find, state, stop, kill, nodes, exclude, burn_in;
  Words waiting, running, ended, down;
  double seconds = 30, every = 5, burn_in_seconds = 600;

  struct Command {
    const char* key;
    Words CommandTemplates::*words;
    const char* doc;
    std::vector<std::string> placeholders;  ///< all that it may have
    std::vector<std::string> needed;        ///< those that it must have
    bool optional = false;
  };
  static const std::vector<Command>& commands();

  template <class Visitor>
  void visit(Visitor& v) {
    for (const Command& c : commands()) v(c.key, this->*c.words, c.doc);
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
};

/// The words of a template. A word that is {options} becomes all of them; a word with a placeholder whose
/// value is empty is left out.
Words expand(const Words& words, const std::map<std::string, std::string>& values, const Words& options = {});

}  // namespace ingot::guard
