// Where the time of training steps goes: every execution of an op and every wait for other ranks, as the trainer makes them, and
// what follows from them: tables by purpose, op, segment and layer, and a trace. What `ingot profile` prints. Recording is in
// profile_run.h; this is arithmetic on what was recorded.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/enum.h"
#include "base/spread.h"
#include "tape/observer.h"
#include "train/trainer.h"

namespace ingot {

/// What time is for. Exchanges: ops that only move rows between ranks, and every wait for others, wherever it was. Rest: what a
/// step does between these (preparing micro-batches, the tape's own work, memory that comes and goes, metrics).
enum class TimeOf { products, attention, kernels, optimizer, exchanges, data, rest };
constexpr auto enum_names(TimeOf) {
  return names_in_order<TimeOf>("products", "attention", "other kernels", "optimizer", "exchanges",
                                "data wait", "rest");
}
inline constexpr int kTimesOf = 7;
/// products, attention, kernels or exchanges.
TimeOf time_of(const Op& op);

/// What an execution is for; again: a repetition of forward for backward.
enum class OpPass { forward, again, input_gradient, weight_gradient };
constexpr auto enum_names(OpPass) {
  return names_in_order<OpPass>("forward", "again", "input gradient", "weight gradient");
}
inline constexpr int kOpPasses = 4;
OpPass pass_of(const OpRun& run);

/// One execution of an op, or one wait for other ranks ("wait"), which may lie inside of one.
struct OpSpan {
  std::string op, segment;  ///< segment is empty outside of forward and backward
  int layer = -1;
  OpPass pass = OpPass::forward;
  TimeOf what = TimeOf::kernels;
  double begin = 0, end = 0;  ///< seconds, on the clock of the rank's profile
  double waited = 0;          ///< of these, waits inside of it: spans of their own
  double flops = 0, bytes = 0, wire_bytes = 0;
  bool is_wait() const { return op == "wait"; }
  double seconds() const { return end - begin - waited; }
};

struct PhaseSpan {
  RunPhase phase = RunPhase::data;
  double begin = 0, end = 0;
};
const char* name_of(RunPhase phase);

struct StepSpan {
  double begin = 0, end = 0;
  std::vector<PhaseSpan> phases;
  std::vector<OpSpan> ops;  ///< in the order in which they ended
};

struct RankProfile {
  int rank = 0, threads = 1;
  std::vector<StepSpan> steps;
  std::vector<double> peak_gflops,
      read_gbs;  ///< of its threads, all ranks measuring at once, before and after the steps
};

/// The sum of all executions that are alike. Seconds without waits inside.
struct ProfileCell {
  TimeOf what = TimeOf::kernels;
  int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0, wire_bytes = 0;
  void add(const ProfileCell& other);
};

struct ProfileReport {
  std::string of, phase, model, precision, isa;
  int64_t parameters = 0;
  int64_t batch = 0, micro_batch = 0, length = 0;
  std::vector<RankProfile> ranks;  ///< in their order; at least one, with equally many steps (at least one)

  int64_t steps() const { return static_cast<int64_t>(ranks.front().steps.size()); }
  Spread step_seconds() const;  ///< of all steps; of a step the longest of its ranks
  double peak_gflops() const;   ///< P: sum over ranks of the median measurement
  double read_gbs() const;      ///< the same
  /// Seconds of the mean step of a rank by TimeOf; they add up to it.
  std::array<double, kTimesOf> times(const RankProfile& rank) const;
  struct Key {
    std::string op, segment;
    int layer;
    OpPass pass;
    auto operator<=>(const Key&) const = default;
  };
  /// Of all ranks and steps together.
  std::map<Key, ProfileCell> cells() const;
};

/// Tables: time by purpose, by op and pass, by segment; `layers`: by layer too.
std::string to_text(const ProfileReport& report, bool layers);
/// {"format": 1, "of", "stage", "model", ..., "times": [...], "cells": [...]}; docs/measuring.md has the fields.
std::string to_json(const ProfileReport& report);
/// Chrome's trace event format, which Perfetto opens: a track for each rank, on it steps, phases, passes, segments and ops, each
/// inside of the one before. The earliest step begins at 0.
std::string trace_json(const ProfileReport& report);

/// A rank's profile as text, and back: how profiles of other processes come to rank 0.
std::string write_profile(const RankProfile& profile);
RankProfile read_profile(const std::string& text);

}  // namespace ingot
