// `ingot profile`: the time of training steps by purpose, op, segment and layer, and a trace, computed from
// the recorded executions of ops and waits for other ranks. profile_run.h records them.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/enum.h"
#include "base/spread.h"
#include "device/device.h"
#include "measure/op_sizes.h"
#include "optim/update_cost.h"
#include "tape/observer.h"
#include "train/trainer.h"

namespace ingot {

/// The purpose of time. Exchanges: ops that only move rows between ranks, and every wait for other ranks.
/// Rest: everything else in a step (preparing micro-batches, the tape's own work, allocation, metrics).
enum class TimeOf { products, attention, kernels, optimizer, exchanges, data, rest };
constexpr auto enum_names(TimeOf) {
  return names_in_order<TimeOf>("products", "attention", "other kernels", "optimizer", "exchanges",
                                "data wait", "rest");
}
inline constexpr int kTimesOf = 7;
/// products, attention, kernels or exchanges.
TimeOf time_of(const Op& op);

/// The pass of an execution; recompute: a forward repeated for backward.
enum class OpPass { forward, recompute, input_gradient, weight_gradient };
constexpr auto enum_names(OpPass) {
  return names_in_order<OpPass>("forward", "recompute", "input gradient", "weight gradient");
}
inline constexpr int kOpPasses = 4;
OpPass pass_of(const OpRun& run);

/// One execution of an op, or one wait for other ranks ("wait"), which may be inside an execution.
struct OpSpan {
  std::string op, segment;  ///< segment is empty outside of forward and backward
  int layer = -1;
  OpPass pass = OpPass::forward;
  TimeOf what = TimeOf::kernels;
  double begin = 0, end = 0;  ///< seconds, on the clock of the rank's profile
  double waited = 0;          ///< of which inside waits, which have spans of their own
  double flops = 0, bytes = 0, wire_bytes = 0;
  OpSizes sizes = {};
  double processor = 0;  ///< of a wait: seconds of processors, while a rank records
  double seconds() const { return end - begin - waited; }
};

struct PhaseSpan {
  StepPart phase = StepPart::data;
  double begin = 0, end = 0;
};
const char* name_of(StepPart phase);

struct StepSpan {
  double begin = 0, end = 0;
  double processor = 0;  ///< seconds of the rank's processors outside of waits for other ranks
  std::vector<PhaseSpan> phases;
  std::vector<OpSpan> ops;  ///< in the order in which they ended
  /// Seconds by TimeOf; they add up to its phases.
  std::array<double, kTimesOf> times() const;
};

/// One of the counters of a device (DeviceCounters): its name, the same in words, what it counted.
struct DeviceCount {
  const char* name;
  const char* words;
  int64_t count;
  bool if_any = false;  ///< in words where it is not 0 alone
};
/// Those that a profile shows, as they are now.
std::vector<DeviceCount> counts_of(const DeviceCounters& counters);
/// "device 'cuda', in a step: 1 graphs, ...", of counts of so many steps.
std::string text_of_device(DeviceKind device, const std::vector<DeviceCount>& counts, double steps);

struct RankProfile {
  int rank = 0, threads = 1;
  UpdateCost update;
  std::vector<StepSpan> steps;
  /// Measured by all ranks at once, before and after the steps. Processor share: seconds of a processor that
  /// each thread has in a second while all are busy, 1 or less.
  std::vector<double> peak_gflops, read_gbs, processor_share;

  /// By how much longer ops take while no rank waits, at least 1. Ranks that share cores are faster while
  /// others wait for them, which is so in these steps alone. All update at once, so an update takes what it
  /// takes.
  double crowding() const;
};

/// The sum of all executions with the same key. Seconds exclude inside waits.
struct ProfileCell {
  TimeOf what = TimeOf::kernels;
  int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0, wire_bytes = 0;
  void add(const ProfileCell& other);
};

/// Checkpoints that were written beside steps: medians over saves, of the slowest rank.
struct SaveTimes {
  int64_t bytes = 0;  ///< of all ranks
  int64_t most = 0;   ///< of those, of one rank
  double pause = 0;   ///< seconds that steps waited
  double write = 0;   ///< seconds of the writing; 0: nothing was saved
};

struct ProfileReport {
  std::string of, phase, model, precision, isa;
  int64_t parameters = 0;
  int64_t batch = 0, micro_batch = 0, length = 0;
  std::vector<RankProfile> ranks;  ///< by rank, at least one; each has the same number of steps, at least one
  DeviceKind device = DeviceKind::cpu;
  std::vector<DeviceCount> device_work = counts_of({});  ///< of all steps, by the first rank's process

  SaveTimes saves;  ///< of ProfileOptions::saves

  int64_t steps() const { return static_cast<int64_t>(ranks.front().steps.size()); }
  Spread step_seconds() const;  ///< over the steps; a step takes as long as its slowest rank
  double peak_gflops() const;   ///< P: sum over ranks of the median measurement
  double read_gbs() const;      ///< B: likewise
  /// Seconds of the rank's mean step by TimeOf; they add up to the whole step.
  std::array<double, kTimesOf> times(const RankProfile& rank) const;
  struct Key {
    std::string op, segment;
    int layer;
    OpPass pass;
    auto operator<=>(const Key&) const = default;
  };
  /// Sums over all ranks and steps.
  std::map<Key, ProfileCell> cells() const;
};

/// Tables of time by purpose, by op and pass, by segment; with `layers` also by layer.
std::string to_text(const ProfileReport& report, bool layers);
/// docs/measuring.md lists the fields.
std::string to_json(const ProfileReport& report);
/// Chrome's trace event format, for Perfetto: a track per rank with nested steps, phases, passes, segments
/// and ops. The earliest step begins at 0.
std::string trace_json(const ProfileReport& report);

/// Serialise a rank's profile, to send it to rank 0.
std::string write_profile(const RankProfile& profile);
RankProfile read_profile(const std::string& text);

}  // namespace ingot
