// The decision of a guard: a pure function of the rules, the facts, what was decided before, and what it may
// do alone. The same function decides in a run, in the simulated cluster and in `ingot guard explain`.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "guard/rules.h"

namespace ingot::guard {

/// Nodes that the signs point to, each with the facts that do.
using Suspects = std::map<std::string, std::set<Fact>>;

/// What is so now. Pure data, written to the journal with each decision.
struct Situation {
  double now = 0;  ///< seconds, of the guard's clock
  Facts facts;
  Suspects suspects;
  std::set<std::string> matching_before = {};  ///< rules whose signs held at the last look
  std::set<std::string> ranks = {};  ///< "rank 3 on n1": where signs tell the ranks of suspects; for people
};

/// A rule whose sign appeared.
struct PastMatch {
  std::string rule;
  double time = 0;
  std::vector<std::string> nodes;
  bool acted = false;    ///< false: noted only
  int64_t excluded = 0;  ///< nodes that its actions left out
};

/// What a guard may do without a person.
struct Scope {
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

struct Decision {
  std::string rule;
  std::vector<Action> actions;
  std::vector<std::string> nodes;  ///< suspects by the facts of the rule's sign; all, where it names none's
  std::string reason;  ///< for people: the facts that the sign names, and why actions differ from the rule's
  int64_t trouble_step = 0;  ///< where a rewind must be before; 0: unknown. Set by the guard
  std::string text() const { return rule + ": " + reason; }
  bool asks() const { return !actions.empty() && actions.back() == Action::ask; }
};

struct Judgement {
  std::optional<Decision> decision;
  std::vector<PastMatch> noted;    ///< signs that appeared but are not sure yet
  std::vector<Decision> alerts;    ///< of rules that only tell and let later ones decide
  std::set<std::string> matching;  ///< rules whose signs hold now
  bool waits = false;              ///< a rule says that the fault will pass
};

/// Asks the rules in order. A sign that still holds is not a new one: `wait` and alerts come once until it is
/// gone.
Judgement decide(std::span<const Rule> rules, const Situation& now, std::span<const PastMatch> past,
                 const Scope& scope);

}  // namespace ingot::guard
