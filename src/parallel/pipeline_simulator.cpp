// See pipeline_simulator.h.
#include "parallel/pipeline_simulator.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace ingot {
namespace {

constexpr double kNever = -1;

/// When the works of one (micro-batch, virtual stage) were done; kNever: not yet.
struct Done {
  double forward = kNever, backward = kNever, weight = kNever;
};

class Simulator {
 public:
  Simulator(const PipelineSchedule& schedule, const std::vector<StageCost>& costs, double transfer)
      : schedule_(schedule),
        shape_(schedule.shape),
        costs_(costs),
        transfer_(transfer),
        done_(static_cast<size_t>(shape_.micro_batches * shape_.virtual_stages())) {
    INGOT_CHECK(schedule.ranks.size() == static_cast<size_t>(shape_.stages), "{} tables",
                schedule.ranks.size());
    INGOT_CHECK(costs.size() == static_cast<size_t>(shape_.virtual_stages()), "{} costs", costs.size());
  }

  Simulation run() {
    const size_t ranks = schedule_.ranks.size();
    std::vector<size_t> next(ranks, 0);
    std::vector<double> clock(ranks, 0);
    result_.busy.assign(ranks, 0);
    result_.peak_live.assign(ranks, 0);
    live_.assign(ranks, 0);
    for (bool advanced = true; advanced;) {
      advanced = false;
      for (size_t r = 0; r < ranks; ++r)
        while (next[r] < schedule_.ranks[r].size() &&
               step(static_cast<int>(r), schedule_.ranks[r][next[r]], clock[r]))
          ++next[r], advanced = true;
    }
    for (size_t r = 0; r < ranks; ++r)
      INGOT_CHECK(next[r] == schedule_.ranks[r].size(), "rank {} waits for ever before the {}", r,
                  schedule_.ranks[r][next[r]].work.str());
    check_complete();
    result_.time = *std::max_element(clock.begin(), clock.end());
    return result_;
  }

 private:
  Done& done(int micro_batch, int stage) {
    return done_[static_cast<size_t>(micro_batch * shape_.virtual_stages() + stage)];
  }
  int stage_of(int rank, const Work& w) const { return shape_.virtual_stage(rank, w.chunk); }

  void check_work(int rank, const Work& w) const {
    INGOT_CHECK(
        w.micro_batch >= 0 && w.micro_batch < shape_.micro_batches && w.chunk >= 0 && w.chunk < shape_.chunks,
        "rank {}: {} does not exist", rank, w.str());
  }

  /// The earliest time at which a work can run; kNever: something that it depends on has not run.
  double ready(int rank, const Work& w) {
    const int stage = stage_of(rank, w), last = shape_.virtual_stages() - 1;
    Done& own = done(w.micro_batch, stage);
    const auto from = [&](int other, double Done::*part) {
      const double at = done(w.micro_batch, other).*part;
      return at == kNever ? kNever : at + (shape_.rank_of(other) == rank ? 0 : transfer_);
    };
    switch (w.kind) {
      case WorkKind::forward:
        INGOT_CHECK(own.forward == kNever, "rank {}: {} runs twice", rank, w.str());
        return stage == 0 ? 0 : from(stage - 1, &Done::forward);
      case WorkKind::backward:
      case WorkKind::backward_input:
        INGOT_CHECK(own.backward == kNever, "rank {}: {} runs twice", rank, w.str());
        if (own.forward == kNever) return kNever;
        return stage == last ? own.forward : from(stage + 1, &Done::backward);
      case WorkKind::backward_weight:
        INGOT_CHECK(own.weight == kNever, "rank {}: {} runs twice", rank, w.str());
        return own.backward;
    }
    return kNever;
  }

  double cost(int rank, const Work& w) const {
    const StageCost& c = costs_[static_cast<size_t>(stage_of(rank, w))];
    switch (w.kind) {
      case WorkKind::forward:
        return c.forward;
      case WorkKind::backward:
        return c.backward();
      case WorkKind::backward_input:
        return c.backward_input;
      case WorkKind::backward_weight:
        return c.backward_weight;
    }
    return 0;
  }

  /// Runs an entry if it can run; false: not yet.
  bool step(int rank, const ScheduleEntry& e, double& clock) {
    INGOT_CHECK(!e.beside || e.work.micro_batch != e.beside->micro_batch || e.work.chunk != e.beside->chunk,
                "rank {}: the {} is merged with its own backward", rank, e.work.str());
    check_work(rank, e.work);
    double start = ready(rank, e.work), length = cost(rank, e.work);
    if (e.beside) {
      check_work(rank, *e.beside);
      INGOT_CHECK(e.work.kind == WorkKind::forward && e.beside->kind == WorkKind::backward,
                  "rank {}: {} beside {}", rank, e.beside->str(), e.work.str());
      const double other = ready(rank, *e.beside);
      start = std::min(start, other) == kNever ? kNever : std::max(start, other);
      length += cost(rank, *e.beside);
    }
    if (start == kNever) return false;
    clock = std::max(clock, start) + length;
    result_.busy[static_cast<size_t>(rank)] += length;
    finish(rank, e.work, clock);
    if (e.beside) finish(rank, *e.beside, clock), ++result_.merged_pairs;
    return true;
  }

  void finish(int rank, const Work& w, double at) {
    const auto r = static_cast<size_t>(rank);
    Done& own = done(w.micro_batch, stage_of(rank, w));
    if (w.kind == WorkKind::forward) {
      own.forward = at;
      result_.peak_live[r] = std::max(result_.peak_live[r], ++live_[r]);
    }
    if (w.kind == WorkKind::backward || w.kind == WorkKind::backward_input) own.backward = at;
    if (w.kind == WorkKind::backward || w.kind == WorkKind::backward_weight) own.weight = at, --live_[r];
  }

  void check_complete() {
    for (int b = 0; b < shape_.micro_batches; ++b)
      for (int s = 0; s < shape_.virtual_stages(); ++s) {
        const Done& d = done(b, s);
        INGOT_CHECK(std::min({d.forward, d.backward, d.weight}) != kNever,
                    "micro-batch {} is not complete in virtual stage {}", b, s);
      }
  }

  const PipelineSchedule& schedule_;
  const PipelineShape& shape_;
  const std::vector<StageCost>& costs_;
  double transfer_;
  std::vector<Done> done_;
  std::vector<int> live_;
  Simulation result_;
};

/// The messages of a schedule, and whether all ranks finish if sends wait for earlier ones to be received.
class Messages {
 public:
  explicit Messages(const PipelineSchedule& schedule) : shape_(schedule.shape) {
    for (int rank = 0; rank < shape_.stages; ++rank)
      for (const ScheduleEntry& e : schedule.ranks[static_cast<size_t>(rank)]) {
        Row row;
        note(rank, e.work, row);
        if (e.beside) note(rank, *e.beside, row);
        rows_[rank].push_back(row);
      }
  }

  /// Messages of one edge are received in the order in which they are sent.
  void check_order() const {
    std::map<Edge, std::vector<Message>> sent, received;
    for (const auto& [rank, rows] : rows_)
      for (const Row& row : rows) {
        for (const auto& [edge, message] : row.sends) sent[edge].push_back(message);
        for (const auto& [edge, message] : row.receives) received[edge].push_back(message);
      }
    INGOT_CHECK(sent == received, "messages of an edge cross, or lack a partner");
  }

  void check_finishes(int messages_held) const {
    std::map<int, size_t> next;     // row of a rank
    std::map<int, bool> computed;   // it has received what its row needs, and sends now
    std::map<Edge, int> in_flight;  // sent, not received
    for (bool advanced = true; advanced;) {
      advanced = false;
      for (const auto& [rank, rows] : rows_) {
        if (next[rank] == rows.size()) continue;
        const bool sends = computed[rank];
        const auto& messages = sends ? rows[next[rank]].sends : rows[next[rank]].receives;
        const int impossible = sends ? messages_held : 0;
        if (std::any_of(messages.begin(), messages.end(),
                        [&](const auto& m) { return in_flight[m.first] == impossible; }))
          continue;
        for (const auto& [edge, message] : messages) in_flight[edge] += sends ? 1 : -1;
        if (sends) ++next[rank];
        computed[rank] = !sends;
        advanced = true;
      }
    }
    for (const auto& [rank, rows] : rows_)
      INGOT_CHECK(next[rank] == rows.size(), "rank {} waits for ever in row {} of its table", rank,
                  next[rank]);
  }

 private:
  using Edge = std::tuple<int, int, bool>;  ///< sender, receiver, whether it goes backward
  using Message = std::pair<int, int>;      ///< micro-batch, virtual stage of the sender
  struct Row {
    std::vector<std::pair<Edge, Message>> sends, receives;
  };

  void note(int rank, const Work& w, Row& row) const {
    if (w.kind == WorkKind::backward_weight) return;
    const bool back = w.kind != WorkKind::forward;
    const int stage = shape_.virtual_stage(rank, w.chunk);
    const int to = stage + (back ? -1 : 1), from = stage + (back ? 1 : -1);
    const auto exists = [&](int s) {  // one rank sends itself no messages
      return s >= 0 && s < shape_.virtual_stages() && shape_.stages > 1;
    };
    if (exists(to)) row.sends.push_back({{rank, shape_.rank_of(to), back}, {w.micro_batch, stage}});
    if (exists(from)) row.receives.push_back({{shape_.rank_of(from), rank, back}, {w.micro_batch, from}});
  }

  PipelineShape shape_;
  std::map<int, std::vector<Row>> rows_;
};

}  // namespace

std::vector<StageCost> even_costs(const PipelineShape& shape, const StageCost& c) {
  const double v = shape.chunks;
  return std::vector<StageCost>(static_cast<size_t>(shape.virtual_stages()),
                                {c.forward / v, c.backward_input / v, c.backward_weight / v});
}

double Simulation::bubble() const {
  const double longest = *std::max_element(busy.begin(), busy.end());
  return (time - longest) / longest;
}

Simulation simulate(const PipelineSchedule& schedule, const std::vector<StageCost>& costs, double transfer) {
  const Simulation result = Simulator(schedule, costs, transfer).run();
  const Messages messages(schedule);
  messages.check_order();
  messages.check_finishes(schedule.shape.messages_held());
  return result;
}

}  // namespace ingot
