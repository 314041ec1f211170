// See command_templates.h.
#include "guard/command_templates.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace ingot::guard {
namespace {

/// Calls `plain` with the texts of a word, and `named` with the names between braces.
template <class Plain, class Named>
void read_word(std::string_view word, const Plain& plain, const Named& named) {
  while (!word.empty()) {
    const size_t begin = std::min(word.find('{'), word.size()), end = word.find('}', begin);
    if (end == word.npos) return plain(word);
    plain(word.substr(0, begin));
    named(word.substr(begin + 1, end - begin - 1));
    word.remove_prefix(end + 1);
  }
}

}  // namespace

void CommandTemplates::validate(ConfigErrors& errors) const {
  using Names = std::set<std::string>;
  // The placeholders of a command are among those that it may have, and it has those that it must have.
  const auto check = [&](const char* key, const Words& words, const Names& may, const Words& must) {
    Names has;
    if (words.empty()) return errors.add(key, "a cluster needs the command '{}'", key);
    for (const std::string& word : words)
      read_word(
          word, [](std::string_view) {},
          [&](std::string_view name) {
            has.insert(std::string(name));
            if (!may.contains(std::string(name)))
              errors.add(key, "'{}' has no placeholder {{{}}}; it has {}", key, name, fmt::join(may, ", "));
            if (name == "options" && word != "{options}") errors.add(key, "{{options}} is a word of its own");
          });
    for (const std::string& name : must)
      if (!has.contains(name)) errors.add(key, "'{}' does not say {{{}}}", key, name);
    if (may.contains("id") && !has.contains("id") && !has.contains("name"))
      errors.add(key, "'{}' says neither {{id}} nor {{name}}", key);
  };
  check("start", start, {"excluded", "log", "name", "options", "run", "script"}, {"script", "name"});
  check("find", find, {"name", "run"}, {"name"});
  check("state", state, {"id", "name", "run"}, {});
  check("stop", stop, {"id", "name", "run"}, {});
  check("kill", kill, {"id", "name", "run"}, {});
  if (!nodes.empty()) check("nodes", nodes, {}, {});
  if (!exclude.empty()) check("exclude", exclude, {"node"}, {"node"});
  if (!burn_in.empty()) check("burn_in", burn_in, {"node", "run"}, {"node"});
  if (!start.empty() && !can_exclude())
    errors.add(
        "start",
        "'start' does not say {{excluded}}, and there is no 'exclude': a node would never be left out");
  if (running.empty() || ended.empty()) errors.add("state", "it needs words: running = [...], ended = [...]");
  if (!nodes.empty() && down.empty()) errors.add("nodes", "it needs words for lost nodes: down = [...]");
}

bool CommandTemplates::can_exclude() const {
  return !exclude.empty() || std::any_of(start.begin(), start.end(), [](const std::string& word) {
    return word.find("{excluded}") != word.npos;
  });
}

CommandTemplates this_machine(Words burn_in) {
  // Scripts see the lock as $0, the file that names the session's leader as $1, and the job's script as $2.
  const auto shell = [](const char* script) {
    return Words{"sh", "-c", script, "{run}/guard/job.lock", "{run}/guard/{name}.pid"};
  };
  CommandTemplates t{
      // The session inherits the lock. Where that is taken, a guard that was killed may just have started it.
      .start = shell(R"sh(flock --timeout 5 "$0" sh -c 'setsid sh "$1" & echo $! >"$0"' "$1" "$2" ||
                            echo 'an earlier start still runs' >&2
                          cat "$1")sh"),
      .find = shell(R"sh([ ! -e "$1" ] || cat "$1")sh"),
      .state = shell(R"sh(flock --shared --nonblock "$0" echo ended || echo running)sh"),
      // Where the lock is free, the leader's number may be another process's. A leader that has ended may
      // have left processes, which are asked then.
      .stop = shell(R"sh(flock --shared --nonblock "$0" true || kill -TERM "$(cat "$1")" ||
                         kill -TERM -"$(cat "$1")")sh"),
      .kill = shell(R"sh(flock --shared --nonblock "$0" true || kill -KILL -"$(cat "$1")")sh"),
      .burn_in = std::move(burn_in),
      .running = {"running"},
      .ended = {"ended"},
      .every = 1,
      .burn_in_seconds = 3 * 3600,  // level 4 takes two hours
      .signal = "TERM",
      .trusted = true};
  t.start.push_back("{script}");
  return t;
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
    read_word(
        word, [&](std::string_view plain) { text += plain; },
        [&](std::string_view name) {
          const auto value = values.find(std::string(name));
          text += value == values.end() ? fmt::format("{{{}}}", name) : value->second;
          empty = empty || (value != values.end() && value->second.empty());
        });
    if (!empty) result.push_back(std::move(text));
  }
  return result;
}

}  // namespace ingot::guard
