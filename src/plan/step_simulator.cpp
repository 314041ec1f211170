// See step_simulator.h.
#include "plan/step_simulator.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "parallel/rank_groups.h"

namespace ingot {
namespace {

constexpr double kNotYet = -1;

/// A pass that runs: its next step, and when it may begin.
struct Cursor {
  struct Arrival {
    int handle;
    double end;
    int channel;
  };
  const TimedProgram* program;
  size_t next = 0;
  double ready = 0;
  int waits_on = -1;              ///< channel of the last transfer that it waited for
  bool began = false;             ///< transfers since it last yielded
  int waiting = 0;                ///< wait_length() at which it yielded; 0: it did not
  std::vector<Arrival> arrivals;  ///< that nobody has waited for
  bool done() const { return next == program->size(); }
};

/// One position of the pipeline.
struct Rank {
  double clock = 0;             ///< of the compute resource
  size_t next = 0;              ///< entry of the table
  std::vector<double> links;    ///< by channel: free from
  std::vector<double> exposed;  ///< RankTime::exposed, by channel
  RankTime time;
  int live = 0;
  double last_backward = 0;  ///< length of the last one
};

class StepSimulator {
 public:
  explicit StepSimulator(const StepInput& input)
      : in_(input), shape_(input.schedule.shape), ranks_(static_cast<size_t>(shape_.stages)) {
    INGOT_CHECK(in_.stages.size() == static_cast<size_t>(shape_.virtual_stages()), "{} stages",
                in_.stages.size());
    for (Rank& r : ranks_)
      r.links.assign(in_.channels.size(), 0.0), r.exposed.assign(in_.channels.size(), 0.0);
    const auto all = static_cast<size_t>(shape_.micro_batches * shape_.virtual_stages());
    forward_.assign(all, kNotYet), backward_.assign(all, kNotYet);
    for (const std::string& group : in_.channels)
      lengths_.push_back(group == "data" ? -1 : wait_length(group));  // those of weights yield to nobody
  }

  StepTime run() {
    for (bool advanced = true; advanced;) {
      advanced = false;
      for (int r = 0; r < shape_.stages; ++r)
        while (advance(r)) advanced = true;
    }
    StepTime result;
    result.merged_pairs = merged_;
    double last = 0;
    for (int r = 0; r < shape_.stages; ++r) {
      const auto i = static_cast<size_t>(r);
      INGOT_CHECK(ranks_[i].next == in_.schedule.ranks[i].size(), "rank {} waits for ever", r);
      end_step(ranks_[i], i);
      if (ranks_[i].clock > last) last = ranks_[i].clock, result.critical = r;
    }
    // The norm of the gradient joins all ranks before the update; an update of every rank then ends the step.
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const StepEnd end = i < in_.ends.size() ? in_.ends[i] : StepEnd{};
      result.seconds = std::max(result.seconds, last + factor(i) * end.update + end.exchange);
    }
    for (size_t i = 0; i < ranks_.size(); ++i) finish(ranks_[i], i, last, result);
    result.spans = std::move(spans_);
    if (in_.ranks_per_core > 1) use_waits(result);
    return result;
  }

 private:
  size_t at(int micro_batch, int stage) const {
    return static_cast<size_t>(micro_batch * shape_.virtual_stages() + stage);
  }
  double factor(size_t rank) const { return rank < in_.slow.size() ? in_.slow[rank] : 1; }
  const TimedProgram& program(int rank, const Work& w) const {
    return in_.stages[static_cast<size_t>(shape_.virtual_stage(rank, w.chunk))][static_cast<size_t>(w.kind)];
  }

  /// When a work's inputs are there; kNotYet.
  double ready(int rank, const Work& w) const {
    const int stage = shape_.virtual_stage(rank, w.chunk), last = shape_.virtual_stages() - 1;
    const auto from = [&](const std::vector<double>& done, int other) {
      const double end = done[at(w.micro_batch, other)];
      return end == kNotYet ? kNotYet : end + (shape_.rank_of(other) == rank ? 0 : in_.message);
    };
    switch (w.kind) {
      case WorkKind::forward:
        return stage == 0 ? 0 : from(forward_, stage - 1);
      case WorkKind::backward:
      case WorkKind::backward_input:
        if (forward_[at(w.micro_batch, stage)] == kNotYet) return kNotYet;
        return stage == last ? forward_[at(w.micro_batch, stage)] : from(backward_, stage + 1);
      case WorkKind::backward_weight:
        return backward_[at(w.micro_batch, stage)];
    }
    return kNotYet;
  }

  bool advance(int r) {
    const auto i = static_cast<size_t>(r);
    Rank& rank = ranks_[i];
    if (rank.next == in_.schedule.ranks[i].size()) return false;
    const ScheduleEntry& e = in_.schedule.ranks[i][rank.next];
    double start = ready(r, e.work);
    if (start == kNotYet) return false;
    std::vector<Cursor> cursors;
    if (e.beside) {  // the backward pass, which begins (parallel/pipeline.cpp)
      const double other = ready(r, *e.beside);
      if (other == kNotYet) return false;
      start = std::max(start, other);
      cursors.push_back({&program(r, *e.beside)});
      ++merged_;
    }
    cursors.push_back({&program(r, e.work)});
    if (start > rank.clock) rank.time.bubble += start - rank.clock, rank.clock = start;
    const double begin = rank.clock;
    run_passes(rank, i, cursors);
    if (e.work.kind != WorkKind::forward || e.beside) rank.last_backward = rank.clock - begin;
    const SpanOf what = e.beside                                   ? SpanOf::merged
                        : e.work.kind == WorkKind::forward         ? SpanOf::forward
                        : e.work.kind == WorkKind::backward_weight ? SpanOf::backward_weight
                                                                   : SpanOf::backward;
    trace({r, what, begin, rank.clock, e.work.micro_batch, e.work.chunk});
    finish_work(r, e.work);
    if (e.beside) finish_work(r, *e.beside);
    ++rank.next;
    return true;
  }

  void finish_work(int r, const Work& w) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const size_t place = at(w.micro_batch, shape_.virtual_stage(r, w.chunk));
    if (w.kind == WorkKind::forward) {
      forward_[place] = rank.clock;
      rank.time.live = std::max(rank.time.live, ++rank.live);
    }
    if (w.kind == WorkKind::backward || w.kind == WorkKind::backward_input) backward_[place] = rank.clock;
    if (w.kind == WorkKind::backward || w.kind == WorkKind::backward_weight) --rank.live;
  }

  void trace(const WorkSpan& span) {
    if (in_.traces && span.end > span.begin) spans_.push_back(span);
  }

  /// Waits until `until`, for a transfer on `channel`.
  void wait(Rank& rank, double until, int channel) {
    if (until <= rank.clock) return;
    rank.exposed[static_cast<size_t>(std::max(0, channel))] += until - rank.clock;
    rank.clock = until;
  }

  /// What a kernel of so many seconds loses that begins at `begin`, beside a transfer until `busy`.
  double lost_beside(double seconds, double begin, double busy) const {
    const double most = in_.beside > 0 ? seconds / in_.beside : std::numeric_limits<double>::infinity();
    return (1 - in_.beside) * std::clamp(busy - begin, 0.0, most);
  }

  /// One pass, or two that take turns as InterleavedPasses does.
  void run_passes(Rank& rank, size_t index, std::vector<Cursor>& cursors) {
    for (Cursor& c : cursors) c.ready = rank.clock;
    for (size_t turn = 0; !cursors[turn].done();) {
      Cursor& own = cursors[turn];
      const size_t other = cursors.size() - 1 - turn;
      const int channel = step(rank, index, own);
      const int length = channel >= 0 ? lengths_[static_cast<size_t>(channel)] : -1;
      const bool waits = length >= 0 && std::exchange(own.began, false);
      if (cursors[other].done() || !(own.done() || (waits && length >= cursors[other].waiting))) continue;
      own.waiting = std::max(0, length), cursors[other].waiting = 0;
      turn = other;
    }
    for (Cursor& c : cursors) wait(rank, c.ready, c.waits_on);
  }

  /// Returns the channel of the transfer for which the pass waits from here on; -1: it computes.
  int step(Rank& rank, size_t index, Cursor& c) {
    const TimedStep& s = (*c.program)[c.next++];
    switch (s.kind) {
      case PassStep::Kind::compute: {
        wait(rank, c.ready, c.waits_on);
        const double seconds = s.seconds * factor(index);
        const auto busy = std::max_element(rank.links.begin(), rank.links.end());
        const double lost = lost_beside(seconds, rank.clock, *busy);
        rank.time.busy[static_cast<size_t>(s.what)] += seconds;
        rank.clock += seconds;
        wait(rank, rank.clock + lost, static_cast<int>(busy - rank.links.begin()));
        c.ready = rank.clock;
        break;
      }
      case PassStep::Kind::transfer: {
        c.began |= lengths_[static_cast<size_t>(s.channel)] >= 0;
        double& link = rank.links[static_cast<size_t>(s.channel)];
        const double end = std::max({link, c.ready, rank.clock}) + s.seconds;
        link = end;
        if (s.handle < 0) return c.ready = end, c.waits_on = s.channel;
        c.arrivals.push_back({s.handle, end, s.channel});
        break;
      }
      case PassStep::Kind::wait: {
        const auto found = std::find_if(c.arrivals.begin(), c.arrivals.end(),
                                        [&](const Cursor::Arrival& a) { return a.handle == s.handle; });
        if (found == c.arrivals.end()) break;
        const int channel = found->channel;
        if (found->end > c.ready) c.ready = found->end, c.waits_on = channel;
        c.arrivals.erase(found);
        return channel;
      }
    }
    return -1;
  }

  /// Sums of gradients: a bucket begins when the last backward has written it, evenly over that backward.
  void end_step(Rank& rank, size_t i) {
    if (i >= in_.ends.size() || in_.ends[i].buckets.empty()) return;
    const StepEnd& end = in_.ends[i];
    const auto count = static_cast<double>(end.buckets.size());
    const double part = rank.last_backward / count;
    double link = 0, lost = 0;
    for (size_t b = 0; b < end.buckets.size(); ++b) {
      const double before = rank.clock + lost - part * (count - static_cast<double>(b));
      lost += lost_beside(part, before, link);
      link = std::max(link, rank.clock + lost - part * (count - 1 - static_cast<double>(b))) + end.buckets[b];
    }
    wait(rank, rank.clock + lost, end.channel);
    const double begin = rank.clock;
    wait(rank, link, end.channel);
    trace({static_cast<int>(i), SpanOf::sums, begin, rank.clock});
  }

  void finish(Rank& rank, size_t i, double last, StepTime& result) {
    const StepEnd end = i < in_.ends.size() ? in_.ends[i] : StepEnd{};
    rank.time.bubble += last - rank.clock;
    rank.time.busy[static_cast<size_t>(TimeOf::optimizer)] += factor(i) * end.update;
    rank.clock = last + factor(i) * end.update;
    const double updated = rank.clock;
    trace({static_cast<int>(i), SpanOf::update, last, updated});
    wait(rank, rank.clock + end.exchange, end.channel);
    trace({static_cast<int>(i), SpanOf::exchange, updated, rank.clock});
    rank.time.bubble += result.seconds - rank.clock;
    for (size_t c = 0; c < rank.exposed.size(); ++c)
      if (rank.exposed[c] > 0) rank.time.exposed[in_.channels[c]] += rank.exposed[c];
    result.ranks.push_back(rank.time);
  }

  /// Where ranks share processors, those that compute have what waits for other stages leave: the step is as
  /// long as a mean rank's own work, or as its chain of passes on processors of their own.
  void use_waits(StepTime& step) const {
    double work = 0;
    for (const RankTime& rank : step.ranks) work += (step.seconds - rank.bubble) / shape_.stages;
    const double seconds = std::max(work, step.seconds / in_.ranks_per_core);
    for (RankTime& rank : step.ranks) {
      rank.bubble = std::max(0.0, rank.bubble - (step.seconds - seconds));
      const double own = rank.sum() - rank.bubble, faster = own > 0 ? (seconds - rank.bubble) / own : 1;
      for (double& part : rank.busy) part *= faster;
      for (auto& [channel, waited] : rank.exposed) waited *= faster;
    }
    for (WorkSpan& span : step.spans)
      span.begin *= seconds / step.seconds, span.end *= seconds / step.seconds;
    step.seconds = seconds;
  }

  const StepInput& in_;
  const PipelineShape& shape_;
  std::vector<Rank> ranks_;
  std::vector<double> forward_, backward_;
  std::vector<int> lengths_;  ///< of waits, by channel
  int merged_ = 0;
  std::vector<WorkSpan> spans_;
};

}  // namespace

double RankTime::sum() const {
  double seconds = std::accumulate(busy.begin(), busy.end(), bubble);
  for (const auto& [channel, waited] : exposed) seconds += waited;
  return seconds;
}

StepTime simulate_step(const StepInput& input) {
  return StepSimulator(input).run();
}

}  // namespace ingot
