// What a plan's step costs in days, devices and money: pure functions over a step's time. Sources:
// [Playbook] (device count, ledger, scaling), [ZAYA1] equations 13 to 16 (reads a second), the renewal
// formula for goodput under failures with the best interval between checkpoints.
#pragma once
#include <string>
#include <vector>

namespace ingot {

/// Devices that reach `flops` in `days` at `rate` FLOP/s x `share` each; not rounded.
double devices_needed(double flops, double rate, double share, double days);

/// Speed-up of p devices where a share of the work does not divide; p = infinity gives the ceiling.
double amdahl(double serial, double p);

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
  double pages = 0;       ///< of a step
  double per_second = 0;  ///< [ZAYA1] eq 14
  double break_even = 0;  ///< seconds of a step below which storage limits it
};
/// `sequences` x `tokens` of `token_bytes` in pages of `page_bytes`, read `spread` times what is needed.
LoaderReads loader_reads(double sequences, double tokens, double token_bytes, double page_bytes,
                         double seconds, double storage_iops, double spread = 1);

/// A row of a ledger of devices and days.
struct LedgerRow {
  std::string name;
  double devices = 0, days = 0;
  double hours() const { return devices * days * 24; }
};
double total_hours(const std::vector<LedgerRow>& rows);

}  // namespace ingot
