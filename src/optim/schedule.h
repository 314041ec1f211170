// Schedules as pure functions of the step: the learning-rate multiplier and Muon's momentum. Nothing here has
// state, so a resumed run needs only its step number.
//
// Steps count from 0; `step` is the update about to be made. Warm-up is linear, (step + 1) / (warmup_steps +
// 1), so that no update has rate 0 and the peak is reached exactly at step == warmup_steps (nanoGPT's
// convention). From `total_steps` on the last value holds. Formulas and sources: docs/optimizers.md.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "base/range.h"

namespace ingot {

/// constant: 1. cosine, linear: from 1 to min_ratio between warm-up and total_steps. wsd: 1, then a decay to
/// min_ratio over the last part (warm-up, stable, decay). piecewise: a list of segments.
enum class ScheduleKind { constant, cosine, wsd, linear, piecewise };
constexpr auto enum_names(ScheduleKind) {
  return names_in_order<ScheduleKind>("constant", "cosine", "wsd", "linear", "piecewise");
}

/// How a value moves from `a` to `b` as x goes from 0 to 1. linear: a + (b - a) x. cosine: half a wave.
/// sqrt: a + (b - a) sqrt(x), falls fast first. hold: jumps to b at once (multi-step drops).
enum class DecayShape { linear, cosine, sqrt, hold };
constexpr auto enum_names(DecayShape) {
  return names_in_order<DecayShape>("linear", "cosine", "sqrt", "hold");
}

/// Until `until` (a fraction of total_steps) the multiplier moves from where the previous segment ended (1
/// for the first) to `to`.
struct ScheduleSegment {
  double until = 1.0;
  double to = 1.0;
  DecayShape shape = DecayShape::hold;
  template <class Visitor>
  void visit(Visitor& v) {
    v("until", until, "end of the segment, as a fraction of the phase", positive(1));
    v("to", to, "multiplier at its end", up_to(1e6));
    v("shape", shape, "how it gets there");
  }
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::cosine;
  int64_t total_steps = 0;  ///< not used by `constant`
  int64_t warmup_steps = 0;
  double min_ratio = 0.0;       ///< last value, as a fraction of the peak
  double decay_fraction = 0.1;  ///< wsd: the decay's share of total_steps
  int64_t decay_steps = 0;  ///< wsd: the decay's length; > 0 wins over decay_fraction (branching off a trunk)
  DecayShape decay_shape = DecayShape::linear;  ///< wsd: linear, cosine or sqrt
  std::vector<ScheduleSegment> segments = {};   ///< piecewise: `until` ascending, the last one 1
};

/// A step at which the schedule changes its regime, for people to read.
struct MarkedStep {
  int64_t step = 0;
  std::string label;
  double multiplier = 0.0;
};

/// Throws Error, with the arithmetic, for a contradiction (warm-up longer than the run, segments unordered).
void validate(const ScheduleConfig& config);

/// The factor on the peak learning rate for update `step` >= 0. `config` must be valid.
double schedule_multiplier(const ScheduleConfig& config, int64_t step);

/// First step, end of warm-up, starts of decays, last step; ascending.
std::vector<MarkedStep> marked_steps(const ScheduleConfig& config);
/// marked_steps() as a line of text with the learning rates for the given peak: "3e-05 at step 0 (warm-up
/// starts), 0.0003 at step 10 (peak), ...".
std::string describe_schedule(const ScheduleConfig& config, double peak_lr);

/// Muon's momentum: linear from `start` to `end` over `steps` updates, then `end` (modded-nanogpt: 0.85 to
/// 0.95 over 300). steps == 0: always `end`.
double warmed_momentum(int64_t step, double start, double end, int64_t steps);

}  // namespace ingot
