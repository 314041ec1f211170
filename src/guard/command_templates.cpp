// See command_templates.h.
#include "guard/command_templates.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace ingot::guard {
namespace {

/// Names between braces.
std::vector<std::string> braces_in(const std::string& word) {
  std::vector<std::string> names;
  for (size_t at = 0; (at = word.find('{', at)) != word.npos;) {
    const size_t end = word.find('}', at);
    if (end == word.npos) break;
    names.push_back(word.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return names;
}

}  // namespace

const std::vector<CommandTemplates::Command>& CommandTemplates::commands() {
  using T = CommandTemplates;
  static const std::vector<Command> all{
      {"start",
       &T::start,
       "submits {script}, which runs the job; prints the job's id first in its last line",
       {"excluded", "log", "name", "options", "run", "script"},
       {"script", "name"}},
      {"find", &T::find, "prints the id of the job that is called {name}, or nothing", {"name"}, {"name"}},
      {"state", &T::state, "prints the state of job {id}, one word", {"id", "name"}, {}},
      {"stop", &T::stop, "asks job {id} to save and end", {"id", "name"}, {}},
      {"kill", &T::kill, "ends job {id}", {"id", "name"}, {}},
      {"nodes", &T::nodes, "prints a line \"name state\" of every node; empty: not asked", {}, {}, true},
      {"exclude",
       &T::exclude,
       "takes {node} out of service; empty: starts leave {excluded} out, no more",
       {"node"},
       {"node"},
       true},
      {"burn_in",
       &T::burn_in,
       "tests {node}: exit code 0 where it is sound, else it says \" tests failed\", as ingot burnin does, "
       "or did not run; empty: no node fails a test",
       {"node", "run"},
       {"node"},
       true}};
  return all;
}

void CommandTemplates::validate(ConfigErrors& errors) const {
  std::map<std::string, std::set<std::string>> said;
  for (const Command& c : commands()) {
    const Words& words = this->*c.words;
    if (words.empty() && !c.optional) errors.add(c.key, "a cluster needs the command '{}'", c.key);
    if (words.empty()) continue;
    const std::set<std::string> known(c.placeholders.begin(), c.placeholders.end());
    std::set<std::string>& own = said[c.key];
    for (const std::string& word : words)
      for (const std::string& placeholder : braces_in(word)) {
        own.insert(placeholder);
        if (!known.contains(placeholder))
          errors.add(c.key, "'{}' has no placeholder {{{}}}; it has {}", c.key, placeholder,
                     fmt::join(known, ", "));
        if (placeholder == "options" && word != "{options}")
          errors.add(c.key, "{{options}} is a word of its own");
      }
    for (const std::string& needed : c.needed)
      if (!own.contains(needed)) errors.add(c.key, "'{}' does not say {{{}}}", c.key, needed);
    if (known.contains("id") && !own.contains("id") && !own.contains("name"))
      errors.add(c.key, "'{}' says neither {{id}} nor {{name}}", c.key);
  }
  if (!start.empty() && exclude.empty() && !said["start"].contains("excluded"))
    errors.add(
        "start",
        "'start' does not say {{excluded}}, and there is no 'exclude': a node would never be left out");
  if (running.empty() || ended.empty()) errors.add("state", "it needs words: running = [...], ended = [...]");
  if (!nodes.empty() && down.empty()) errors.add("nodes", "it needs words for lost nodes: down = [...]");
}

Words expand(const Words& words, const std::map<std::string, std::string>& values, const Words& options) {
  Words result;
  for (const std::string& word : words) {
    if (word == "{options}") {
      result.insert(result.end(), options.begin(), options.end());
      continue;
    }
    std::string text;
    bool empty = false;
    for (size_t at = 0; at < word.size();) {
      const size_t end = word[at] == '{' ? word.find('}', at) : word.npos;
      const auto found = end == word.npos ? values.end() : values.find(word.substr(at + 1, end - at - 1));
      if (found == values.end()) {
        text += word[at++];
        continue;
      }
      empty = empty || found->second.empty();
      text += found->second;
      at = end + 1;
    }
    if (!empty) result.push_back(std::move(text));
  }
  return result;
}

}  // namespace ingot::guard
