// See pipeline_schedule.h.
#include "parallel/pipeline_schedule.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {
namespace {

int group_of(const PipelineShape& s) {
  return s.group > 0 ? s.group : s.stages;
}

void check_shape(PipelineScheduleKind kind, const PipelineShape& s) {
  const std::string what = fmt::format("schedule {} of {}", name_of(kind), s.str());
  if (std::min({s.stages, s.chunks, s.micro_batches}) < 1 || s.group < 0) fail("{}: sizes begin at 1", what);
  const bool one_chunk =
      kind == PipelineScheduleKind::one_forward_one_backward || kind == PipelineScheduleKind::zero_bubble;
  if (one_chunk && s.chunks != 1)
    throw Error(fmt::format("{}: this schedule has one chunk per rank", what),
                "choose interleaved or merged");
  if (s.chunks == 1) return;
  const int g = group_of(s), rest = s.micro_batches % g;
  if (g < s.stages) fail("{}: a group needs at least as many micro-batches as there are stages", what);
  if (s.micro_batches > g && rest != 0 && rest < s.stages)
    throw Error(fmt::format("{}: the last group has {} micro-batches, fewer than stages", what, rest),
                "choose a multiple of the number of stages as micro-batches of a step");
}

/// The forwards and backwards of one rank in the order of a kind.
class RankTable {
 public:
  RankTable(const PipelineShape& shape, bool split)
      : shape_(shape), order_(chunk_order(shape)), split_(split) {}

  int count() const { return static_cast<int>(order_.size()); }
  Work forward(int k) const { return {WorkKind::forward, order_[at(k)].first, order_[at(k)].second}; }
  Work backward(int k, WorkKind kind) const {
    return {kind, order_[at(k)].first, shape_.chunks - 1 - order_[at(k)].second};
  }
  Work backward(int k) const { return backward(k, split_ ? WorkKind::backward_input : WorkKind::backward); }

 private:
  static size_t at(int k) { return static_cast<size_t>(k); }
  const PipelineShape& shape_;
  std::vector<std::pair<int, int>> order_;
  bool split_;
};

std::vector<ScheduleEntry> alternating(const RankTable& t, int warm_up) {
  std::vector<ScheduleEntry> rows;
  for (int k = 0; k < warm_up; ++k) rows.push_back({t.forward(k)});
  for (int k = 0; k < t.count(); ++k) {
    if (k + warm_up < t.count()) rows.push_back({t.forward(k + warm_up)});
    rows.push_back({t.backward(k)});
  }
  return rows;
}

std::vector<ScheduleEntry> merged(const RankTable& t, int warm_up) {
  std::vector<ScheduleEntry> rows;
  for (int k = 0; k < warm_up; ++k) rows.push_back({t.forward(k)});
  for (int k = 0; k < t.count(); ++k)
    rows.push_back(k + warm_up < t.count() ? ScheduleEntry{t.forward(k + warm_up), t.backward(k)}
                                           : ScheduleEntry{t.backward(k)});
  return rows;
}

std::vector<ScheduleEntry> zero_bubble(const RankTable& t, int warm_up, int late) {
  std::vector<ScheduleEntry> rows;
  for (int k = 0; k < warm_up; ++k) rows.push_back({t.forward(k)});
  for (int k = 0; k < t.count() + late; ++k) {
    if (k + warm_up < t.count()) rows.push_back({t.forward(k + warm_up)});
    if (k < t.count()) rows.push_back({t.backward(k)});
    if (k >= late) rows.push_back({t.backward(k - late, WorkKind::backward_weight)});
  }
  return rows;
}

}  // namespace

std::string PipelineShape::str() const {
  return fmt::format("{} stages x {} chunks, {} micro-batches in groups of {}", stages, chunks, micro_batches,
                     group_of(*this));
}

std::string Work::str() const {
  return fmt::format("{} of micro-batch {} in chunk {}", name_of(kind), micro_batch, chunk);
}

std::string PipelineSchedule::str() const {
  const auto short_name = [&](const Work& w) {
    static const char kLetters[] = {'F', 'B', 'I', 'W'};
    return fmt::format("{}{}{}", kLetters[static_cast<int>(w.kind)], w.micro_batch,
                       shape.chunks > 1 ? fmt::format(".{}", w.chunk) : "");
  };
  std::string text;
  for (const auto& rows : ranks) {
    for (const ScheduleEntry& e : rows)
      text += fmt::format("{}{}{} ", short_name(e.work), e.beside ? "+" : "",
                          e.beside ? short_name(*e.beside) : "");
    text.back() = '\n';
  }
  return text;
}

std::vector<std::pair<int, int>> chunk_order(const PipelineShape& s) {
  const int g = group_of(s);
  std::vector<std::pair<int, int>> order;
  for (int first = 0; first < s.micro_batches; first += g)
    for (int chunk = 0; chunk < s.chunks; ++chunk)
      for (int b = first; b < std::min(first + g, s.micro_batches); ++b) order.emplace_back(b, chunk);
  return order;
}

PipelineSchedule make_pipeline_schedule(PipelineScheduleKind kind, const PipelineShape& shape) {
  check_shape(kind, shape);
  PipelineSchedule schedule{shape, {}};
  for (int r = 0; r < shape.stages; ++r) {
    const int below = shape.stages - r - 1;
    const RankTable t(shape, kind == PipelineScheduleKind::zero_bubble);
    const int across = std::min(t.count(), 2 * below + (shape.chunks - 1) * group_of(shape));
    switch (kind) {
      case PipelineScheduleKind::one_forward_one_backward:
        schedule.ranks.push_back(alternating(t, std::min(t.count(), below)));
        break;
      case PipelineScheduleKind::interleaved:
        schedule.ranks.push_back(alternating(t, shape.chunks > 1 ? across : std::min(t.count(), below)));
        break;
      case PipelineScheduleKind::zero_bubble:
        schedule.ranks.push_back(zero_bubble(t, std::min(t.count(), below), r));
        break;
      case PipelineScheduleKind::merged:
        schedule.ranks.push_back(merged(t, std::min(t.count(), across + 1)));
        break;
    }
  }
  return schedule;
}

PipelineSchedule make_forward_schedule(PipelineShape shape) {
  shape.group = std::max(shape.stages, shape.micro_batches);
  PipelineSchedule schedule{shape, {}};
  std::vector<ScheduleEntry> rows;
  for (const auto& [micro_batch, chunk] : chunk_order(shape))
    rows.push_back({{WorkKind::forward, micro_batch, chunk}});
  schedule.ranks.assign(static_cast<size_t>(shape.stages), rows);
  return schedule;
}

}  // namespace ingot
