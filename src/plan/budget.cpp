// See budget.h.
#include "plan/budget.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace ingot {

double devices_needed(double flops, double rate, double share, double days) {
  if (rate <= 0 || share <= 0 || days <= 0)
    fail("{} FLOP/s x {} over {} days reach nothing", rate, share, days);
  return flops / (rate * share * days * 86400);
}

double amdahl(double serial, double p) {
  return 1 / (serial + (1 - serial) / p);
}

double FailureRate::between() const {
  return device_hours > 0 ? 3600 * device_hours / devices : std::numeric_limits<double>::infinity();
}

double goodput(const FailureRate& failures, double interval, double pause) {
  const double period = interval + pause, mean = failures.between();
  if (!std::isfinite(mean)) return interval / period;
  // A period succeeds with probability exp(-period / mean). Until it does, each failure costs the time into
  // the period (together mean * (exp(period / mean) - 1) a period), detection and restart.
  const double failures_of_period = std::expm1(period / mean);
  return interval / (failures_of_period * (mean + failures.detect_seconds + failures.restart_seconds));
}

double best_interval(const FailureRate& failures, double pause) {
  const double mean = failures.between();
  if (!std::isfinite(mean)) return mean;
  double low = std::min(1.0, mean), high = 10 * mean;
  for (int i = 0; i < 200; ++i) {  // one peak
    const double a = low + (high - low) / 3, b = high - (high - low) / 3;
    (goodput(failures, a, pause) < goodput(failures, b, pause) ? low : high) =
        goodput(failures, a, pause) < goodput(failures, b, pause) ? a : b;
  }
  return (low + high) / 2;
}

LoaderReads loader_reads(double sequences, double tokens, double token_bytes, double page_bytes,
                         double seconds, double storage_iops, double spread) {
  LoaderReads r;
  r.pages = spread * std::ceil(sequences * tokens * token_bytes / page_bytes);
  r.per_second = r.pages / seconds;
  r.break_even = storage_iops > 0 ? r.pages / storage_iops : 0;
  return r;
}

double total_hours(const std::vector<LedgerRow>& rows) {
  double hours = 0;
  for (const LedgerRow& row : rows) hours += row.hours();
  return hours;
}

}  // namespace ingot
