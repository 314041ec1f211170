// A whole run's days, device hours and money, from the time of a step (run_time.h) and what a cluster file
// says of storage, failures and price. Pure functions. Sources: [ZAYA1] equations 13 to 16 (reads a second),
// the renewal formula for goodput under failures with the best interval between checkpoints.
#pragma once
#include <string>

#include "plan/run_time.h"

namespace ingot {

/// Of `devices` devices, each of which fails once in `device_hours`.
struct FailureRate {
  double device_hours = 0, devices = 1;
  double detect_seconds = 0, restart_seconds = 0;  ///< until somebody notices; until the next step
  /// Mean seconds between failures of the whole; infinite where device_hours is 0.
  double between() const;
};

/// Share of time that becomes kept training when a checkpoint that stops training for `pause` seconds is
/// made every `interval` seconds: a failure costs detection, restart and what was trained since the last
/// one. Failures are a Poisson process; exact for it.
double goodput(const FailureRate& failures, double interval, double pause);
/// The interval with the most goodput; without failures infinite.
double best_interval(const FailureRate& failures, double pause);

/// Reads of a loader.
struct LoaderReads {
  double per_second = 0;  ///< [ZAYA1] eq 14
  double break_even = 0;  ///< seconds of a step below which storage limits it
};
/// Of steps of `seconds` that need so many bytes each, in pages, from a storage of so many reads a second.
LoaderReads loader_reads(double bytes, double page_bytes, double seconds, double iops);

struct RunBudget {
  int64_t steps = 0, tokens = 0;
  double step_days = 0;         ///< of steps alone
  double checkpoint_pause = 0;  ///< seconds: copy of a device's share, and what goes before it
  double checkpoint_write = 0;  ///< seconds: of all shares to the first storage
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
std::string to_json(const RunBudget& budget);

}  // namespace ingot
