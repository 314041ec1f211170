// See schedule.h.
#include "optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace ingot {
namespace {

double shaped(DecayShape shape, double from, double to, double x) {
  switch (shape) {
    case DecayShape::linear:
      return from + (to - from) * x;
    case DecayShape::cosine:
      return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * x));
    case DecayShape::sqrt:
      return from + (to - from) * std::sqrt(x);
    case DecayShape::hold:
      return to;
  }
  return to;
}

int64_t wsd_decay_start(const ScheduleConfig& c) {
  const int64_t decay =
      c.decay_steps > 0 ? c.decay_steps : std::llround(c.decay_fraction * static_cast<double>(c.total_steps));
  return c.total_steps - decay;
}

int64_t segment_end(const ScheduleConfig& c, size_t i) {
  return i + 1 == c.segments.size() ? c.total_steps
                                    : std::llround(c.segments[i].until * static_cast<double>(c.total_steps));
}

/// Progress of `step` through [begin, end), clamped to [0, 1]; an empty range counts as done.
double progress(int64_t step, int64_t begin, int64_t end) {
  if (step >= end) return 1.0;
  return std::max(0.0, static_cast<double>(step - begin) / static_cast<double>(end - begin));
}

double piecewise_value(const ScheduleConfig& c, int64_t step) {
  double from = 1.0;
  int64_t begin = 0;
  for (size_t i = 0; i < c.segments.size(); ++i) {
    const int64_t end = segment_end(c, i);
    if (step < end) return shaped(c.segments[i].shape, from, c.segments[i].to, progress(step, begin, end));
    from = c.segments[i].to;
    begin = end;
  }
  return from;
}

void validate_piecewise(const ScheduleConfig& c) {
  if (c.segments.empty())
    throw Error("a piecewise schedule has no segments", "give at least one (until, to, shape)");
  double before = 0.0;
  for (const ScheduleSegment& s : c.segments) {
    if (!(s.until > before) || s.until > 1.0)
      fail("schedule segments must end at ascending fractions in (0, 1]: found {} after {}", s.until, before);
    if (!(s.to >= 0.0)) fail("a schedule segment goes to {}, expected a factor >= 0", s.to);
    before = s.until;
  }
  if (before != 1.0) fail("the last schedule segment ends at {}, expected 1", before);
}

}  // namespace

void validate(const ScheduleConfig& c) {
  if (c.warmup_steps < 0) fail("the schedule has warmup_steps = {}, expected >= 0", c.warmup_steps);
  if (!(c.min_ratio >= 0.0)) fail("the schedule has min_ratio = {}, expected >= 0", c.min_ratio);
  if (c.kind == ScheduleKind::constant) return;
  if (c.total_steps <= 0)
    fail("a {} schedule needs total_steps > 0, found {}", name_of(c.kind), c.total_steps);
  if (c.warmup_steps > c.total_steps)
    fail("the warm-up of {} steps is longer than the whole schedule of {}", c.warmup_steps, c.total_steps);
  if (c.kind == ScheduleKind::piecewise) validate_piecewise(c);
  if (c.kind != ScheduleKind::wsd) return;
  if (c.decay_shape == DecayShape::hold)
    fail("a wsd schedule cannot decay by 'hold': use linear, cosine or sqrt");
  if (c.decay_steps < 0 || !(c.decay_fraction >= 0.0 && c.decay_fraction <= 1.0))
    fail("the wsd schedule has decay_steps = {} and decay_fraction = {}, expected >= 0 and in [0, 1]",
         c.decay_steps, c.decay_fraction);
  if (wsd_decay_start(c) < c.warmup_steps)
    fail("warm-up and decay overlap: {} steps in total, warm-up {}, decay {}: {} + {} > {}", c.total_steps,
         c.warmup_steps, c.total_steps - wsd_decay_start(c), c.warmup_steps,
         c.total_steps - wsd_decay_start(c), c.total_steps);
}

double schedule_multiplier(const ScheduleConfig& c, int64_t step) {
  INGOT_CHECK(step >= 0, "step = {}", step);
  if (step < c.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(c.warmup_steps + 1);
  switch (c.kind) {
    case ScheduleKind::constant:
      return 1.0;
    case ScheduleKind::cosine:
      return shaped(DecayShape::cosine, 1.0, c.min_ratio, progress(step, c.warmup_steps, c.total_steps));
    case ScheduleKind::linear:
      return shaped(DecayShape::linear, 1.0, c.min_ratio, progress(step, c.warmup_steps, c.total_steps));
    case ScheduleKind::wsd: {
      const int64_t start = wsd_decay_start(c);
      return step < start || start == c.total_steps
                 ? 1.0
                 : shaped(c.decay_shape, 1.0, c.min_ratio, progress(step, start, c.total_steps));
    }
    case ScheduleKind::piecewise:
      return piecewise_value(c, step);
  }
  return 1.0;
}

std::vector<MarkedStep> marked_steps(const ScheduleConfig& c) {
  std::vector<MarkedStep> marks;
  const auto mark = [&](int64_t step, std::string label) {
    if (!marks.empty() && marks.back().step >= step) return;
    marks.push_back({step, std::move(label), schedule_multiplier(c, step)});
  };
  mark(0, c.warmup_steps > 0 ? "warm-up starts" : "first step");
  if (c.warmup_steps > 0) mark(c.warmup_steps, "peak");
  if (c.kind == ScheduleKind::wsd && wsd_decay_start(c) < c.total_steps)
    mark(wsd_decay_start(c), "decay starts");
  if (c.kind == ScheduleKind::piecewise)
    for (size_t i = 0; i + 1 < c.segments.size(); ++i)
      mark(segment_end(c, i), fmt::format("segment {} starts ({})", i + 2, name_of(c.segments[i + 1].shape)));
  if (c.total_steps > 0) mark(c.total_steps - 1, "last step");
  return marks;
}

std::string describe_schedule(const ScheduleConfig& c, double peak_lr) {
  std::string text;
  for (const MarkedStep& m : marked_steps(c))
    text += fmt::format("{}{:.4g} at step {} ({})", text.empty() ? "" : ", ", m.multiplier * peak_lr, m.step,
                        m.label);
  return text;
}

double warmed_momentum(int64_t step, double start, double end, int64_t steps) {
  if (steps <= 0 || step >= steps) return end;
  const double x = static_cast<double>(step) / static_cast<double>(steps);
  return (1.0 - x) * start + x * end;
}

}  // namespace ingot
