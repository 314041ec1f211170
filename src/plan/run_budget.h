// A whole run's days, device hours and money, from the time of a step (run_time.h) and what a cluster file
// says of storage, failures and price (budget.h).
#pragma once
#include <string>

#include "plan/budget.h"
#include "plan/run_time.h"

namespace ingot {

struct RunBudget {
  int64_t steps = 0, tokens = 0;
  double step_days = 0;         ///< of steps alone
  double checkpoint_pause = 0;  ///< seconds: copy of a device's share
  double checkpoint_write = 0;  ///< seconds: of all shares to the first storage
  double interval = 0;          ///< best seconds between checkpoints; infinite where failures are not known
  int64_t interval_steps = 0;   ///< the recipe's, or the best where failures are known
  double goodput = 1;           ///< share of time that becomes kept training
  double days = 0, device_hours = 0;
  double price = 0;                ///< 0: not known
  double devices_for_a_month = 0;  ///< at this rate; not rounded
  double tokens_per_parameter = 0;
  LoaderReads reads;  ///< zero where the storage does not say its reads a second
};

/// The phase that was planned stands for all: a step of another phase takes time by its tokens.
RunBudget budget_run(const Recipe& recipe, const RunPlan& plan, const RunTime& time, const Cluster& cluster);
std::string to_text(const RunBudget& budget);

}  // namespace ingot
