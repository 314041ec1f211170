// The rule file of a guard: which sign means what, how sure that is, and what to do. Ordered; the first rule
// that holds and may act decides. recipes/guard-rules.toml is the shipped one, docs/guard.md the reference.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/file_system.h"
#include "guard/expression.h"

namespace ingot::guard {

enum class Action : uint8_t {
  wait,             ///< lets the job alone; later rules are not asked
  alert,            ///< tells people, and asks later rules
  save_evidence,    ///< copies what the run said into the guard's folder
  stop,             ///< ends the job: asks it to save, then kills it
  burn_in,          ///< tests the suspects
  exclude_failing,  ///< leaves out the suspects that failed, and returns those that passed
  exclude,          ///< leaves out all suspects
  restart,          ///< from the newest complete checkpoint, spares in place of excluded nodes
  rewind,           ///< restarts from the newest checkpoint before the trouble, with the same data
  skip,             ///< the same, and leaves out the batches of the trouble
  shrink,           ///< restarts on fewer nodes
  ask               ///< waits for a person
};
constexpr auto enum_names(Action) {
  return names_in_order<Action>("wait", "alert", "save_evidence", "stop", "burn_in", "exclude_failing",
                                "exclude", "restart", "rewind", "skip", "shrink", "ask");
}
/// Whether it starts the job.
constexpr bool starts_job(Action a) {
  return a == Action::restart || a == Action::rewind || a == Action::skip || a == Action::shrink;
}
/// Whether it changes nothing of the job.
constexpr bool only_tells(Action a) {
  return a == Action::alert || a == Action::save_evidence;
}
bool any_starts(const std::vector<Action>& actions);
template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}
/// "stop, restart"
std::string list_of(const std::vector<Action>& actions);

enum class Sureness : uint8_t {
  certain,   ///< acts at once
  probable,  ///< acts after `repeats`
  unknown    ///< ends with a person: `ask` is an action, or stands beyond its limit
};
constexpr auto enum_names(Sureness) {
  return names_in_order<Sureness>("certain", "probable", "unknown");
}

/// "3 in 24h per node": a number of times in a window.
struct Times {
  int64_t count = 0;
  double seconds = 0;
  bool per_node = false;
  bool given() const { return count > 0; }
};
/// Error for anything else.
Times parse_times(std::string_view text);

struct Rule {
  std::string name, when;
  Sureness sure = Sureness::certain;
  std::string repeats, limit;
  std::vector<Action> act, then;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "what it recognises; alerts, books and the journal call it so");
    v("when", when, "the sign: an expression over facts (docs/guard.md)");
    v("sure", sure, "certain acts at once, probable after `repeats`, unknown ends with a person");
    v("repeats", repeats, "of a probable sign, e.g. \"2 in 5min\"");
    v("act", act, "actions in their order");
    v("limit", limit, "how often it may act, e.g. \"3 in 24h per node\"; needed where it starts the job");
    v("then", then, "actions beyond the limit; empty: ask");
  }
  // What these texts say:
  Expression sign;
  Times sure_after, at_most;
};

struct RuleFile {
  std::vector<Rule> rules;
  template <class Visitor>
  void visit(Visitor& v) {
    v("rules", rules, "in the order in which they are asked");
  }
  void validate(ConfigErrors& errors) const;
};

/// Reads and checks a rule file. One Error with every message, each with its line: unknown facts and
/// actions, rules that can never hold, or are never asked because an earlier one decides whenever they hold,
/// a start of the job without a limit, two rules of one name.
std::vector<Rule> load_rules(const std::string& path);
std::vector<Rule> parse_rules(std::string_view text, const std::string& source);

}  // namespace ingot::guard
