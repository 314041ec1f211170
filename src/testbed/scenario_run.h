// Runs scenarios: the guard's own code against the simulated cluster, compared with the truth.
#pragma once
#include <string>
#include <vector>

#include "guard/books.h"
#include "guard/rules.h"
#include "testbed/scenario.h"
#include "testbed/simulated_cluster.h"

namespace ingot::guard {

struct Outcome {
  Scenario scenario;
  Books books;
  std::vector<ActiveFault> faults;
  std::vector<std::string> problems;  ///< what no guard may do, or books that do not add up
  double trained_seconds = 0;         ///< that the job has at the end
  int64_t questions = 0;
};

enum class GuardKind {
  rules,    ///< as `ingot guard` decides
  restarts  ///< only starts the job again when it has ended, on the same nodes
};

/// Pure function of its arguments.
Outcome run_scenario(const Scenario& scenario, const std::vector<Rule>& rules, GuardKind kind);

/// Every kind of fault alone in each phase of a job, and all kinds in pairs.
struct Suite {
  std::vector<Scenario> singles, doubles;
};
Suite fault_suite();

struct SuiteResult {
  int64_t scenarios = 0, singles = 0, right_singles = 0, doubles = 0, right_doubles = 0, asked_doubles = 0;
  double node_years = 0;
  std::vector<std::string> wrong;     ///< "hang in load: decided 'slow'"
  std::vector<std::string> problems;  ///< of Outcome
  void add(const Outcome& outcome, bool single);
};

}  // namespace ingot::guard
