// See guard.h.
#include "guard/guard.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"

namespace ingot::guard {
namespace {

constexpr double kRemembered = 8 * 86'400.0;  ///< seconds that matches stay in memory
constexpr const char* kFirstStart = "first start";

/// What the time of an action is booked under.
Cause cause_of(Action action, JobState job) {
  if (action == Action::stop) return Cause::stop;
  if (action == Action::burn_in) return Cause::burn_in;
  if (action == Action::ask) return Cause::person;
  if (action == Action::wait || (starts_job(action) && job == JobState::absent)) return Cause::waiting;
  return starts_job(action) && job == JobState::running ? Cause::load : Cause::start;
}

}  // namespace

Guard::Guard(GuardOptions options, Adaptor& adaptor, Store& store)
    : options_(std::move(options)), adaptor_(adaptor), store_(store) {
  go_on(store_.entries());
}

void Guard::go_on(const std::vector<Entry>& entries) {
  now_ = adaptor_.observe().now;
  books_ = store_.books().value_or(Books(ms()));
  int64_t highest = -1, idle = 0;
  bool decided = false;
  for (const Entry& e : entries) {
    if (e.event == Event::job) {
      requested_ = starts_ = e.value, idle += e.value > 1;
      if (busy()) ++index_;  // the action that started it is done, whether or not that was written
    }
    if (e.event == Event::progress) highest = std::max(highest, e.value), idle = 0;
    if (e.event == Event::finished) finished_ = true;
    apply(e);
    decided |= e.event == Event::decided;
    if (e.situation && e.event == Event::decided) matching_ = e.situation->matching_before;
    if (e.event == Event::decided || e.event == Event::answered) matching_.insert(e.rule);
  }
  if (!entries.empty()) tracker_.resume(starts_, std::max(highest, books_.step()), idle, now_);
  seen_start_ = starts_;
  write({.event = Event::begin, .text = entries.empty() ? "new" : "continues"});
  if (decided) return;
  past_.clear();  // new, or killed before its first decision
  begin({kFirstStart, {Action::restart}, {}, "the guard begins"}, {});
}

void Guard::apply(const Entry& e) {
  entries_ = e.number;
  remember(past_, e);
  if (e.event == Event::decided) plan_ = {e.rule, e.actions, e.nodes, e.reason, e.value};
  if (e.event == Event::answered) plan_.rule = e.rule, plan_.actions = e.actions, plan_.nodes = e.nodes;
  if (e.event == Event::decided || e.event == Event::answered) {
    index_ = 0;
    begun_ = stopping_ = false;
    killed_at_.reset();
    decided_entry_ = e.number;
    acted_since_ = e.time;
  }
  if (e.event == Event::done) {
    excluded_.insert(e.nodes.begin(), e.nodes.end());
    begun_ = false;
    index_ = static_cast<size_t>(e.index + 1);
  }
  if (index_ >= plan_.actions.size()) plan_ = {}, index_ = 0;
}

void Guard::write(Entry entry) {
  entry.number = entries_ + 1;
  entry.time = now_;
  store_.append(entry);
  apply(entry);
  store_.keep(books_);
  if (listener_) listener_(entry);
}

void Guard::tick() {
  const Observation& seen = adaptor_.observe();
  now_ = std::max(now_, seen.now);
  book(seen);
  if (!finished_) look(seen);
}

void Guard::book(const Observation& seen) {
  if (seen.start != seen_start_ && seen.first.start_step >= 0) {  // what came after it is made again
    seen_start_ = seen.start;
    saved_seconds_ = 0;
    books_.fall_back(seen.first.start_step);
  }
  const bool ran = seen.job == JobState::running || seen.job == JobState::ended;
  if (ran && seen.start == seen_start_ && seen.first.step > books_.step() && seen.first.start_step >= 0) {
    const int64_t paused = std::llround((seen.first.saved_seconds - saved_seconds_) * 1000);
    saved_seconds_ = seen.first.saved_seconds;
    books_.spend(Cause::checkpoint, std::min(ms(), books_.until_ms() + std::max<int64_t>(0, paused)));
    if (tracker_.throughput() < 0.9) {
      const double lost = static_cast<double>(ms() - books_.until_ms()) * (1 - tracker_.throughput());
      books_.spend(Cause::slow, books_.until_ms() + std::llround(lost));
    }
    books_.train(ms(), seen.first.step);
    return;
  }
  if (busy()) {
    const Action action = plan_.actions[index_];
    if (seen.job != JobState::running || action != Action::ask)
      books_.spend(cause_of(action, seen.job), ms());
  } else if (waits_) {
    books_.spend(Cause::waiting, ms());
  } else if (seen.job == JobState::starting || (seen.job == JobState::running && seen.first.step < 0)) {
    books_.spend(seen.job == JobState::starting ? Cause::start : Cause::load, ms());
  } else if (finished_) {
    books_.spend(Cause::idle, ms());
  }
}

void Guard::look(const Observation& seen) {
  if (options_.only_restarts) {
    if (!busy() && seen.job == JobState::ended) begin({"restart", {Action::restart}, {}, "it ended"}, {});
    return advance(seen);
  }
  const int64_t idle = tracker_.idle_restarts();
  const double progressed = tracker_.last_progress();
  Situation s = tracker_.look(seen);
  s.matching_before = matching_;
  if (idle > 0 && tracker_.idle_restarts() == 0)
    write({.event = Event::progress, .value = tracker_.highest_step()});
  if (busy()) {
    const bool overtakable = asks() && asked_running_;  // the job may meet other faults meanwhile
    advance(seen);
    if (overtakable ? !asks() : busy()) return;
  }
  if (seen.job == JobState::ended && seen.exit_code == 0) {
    books_.spend(Cause::stop, ms());
    finished_ = true;
    return write({.event = Event::finished});
  }
  std::erase_if(past_, [&](const PastMatch& p) { return p.time < now_ - kRemembered; });
  const Judgement j = decide(options_.rules, s, past_, options_.scope);
  for (const PastMatch& p : j.noted)
    write({.event = Event::noted, .rule = p.rule, .nodes = p.nodes, .situation = s});
  for (const Decision& d : j.alerts) {
    write({.event = Event::alerted, .rule = d.rule, .reason = d.reason, .nodes = d.nodes});
    adaptor_.alert(d.text());
  }
  waits_ = j.waits;
  if (j.decision && !(asks() && j.decision->rule == plan_.rule)) {
    detect_seconds_ = now_ - progressed;
    Decision decision = *j.decision;
    if (!seen.minority.empty() && seen.agreed_step >= 0) decision.trouble_step = seen.agreed_step + 1;
    if (seen.failure && seen.failure->trouble_step > 0) decision.trouble_step = seen.failure->trouble_step;
    begin(decision, s);
    advance(seen);
  }
  matching_ = j.matching;
}

void Guard::begin(const Decision& decision, const std::optional<Situation>& situation) {
  if (decision.actions[0] != Action::wait) books_.spend(Cause::detection, ms());
  failing_.clear();
  step_at_decision_ = books_.step();
  write({.event = Event::decided,
         .rule = decision.rule,
         .reason = decision.reason,
         .actions = decision.actions,
         .nodes = decision.nodes,
         .value = decision.trouble_step,
         .situation = situation});
}

void Guard::advance(const Observation& seen) {
  while (busy()) {
    const Action action = plan_.actions[index_];
    const auto index = static_cast<int64_t>(index_);
    if (!begun_) {
      begun_ = true;
      acted_since_ = now_;
      asked_running_ = action == Action::ask && seen.job == JobState::running;
      write({.event = Event::act, .rule = plan_.rule, .actions = {action}, .index = index});
    }
    bool ended = false;
    try {
      ended = act(action, seen);
    } catch (const Error& e) {
      const std::string trouble = fmt::format("'{}' failed: {}", name_of(action), e.what());
      log::warn("{}", trouble);
      if (only_tells(action)) {
        ended = true;  // telling must not keep it from acting
      } else if (action != Action::ask) {
        begin({plan_.rule, {Action::ask}, plan_.nodes, trouble}, {});
        continue;
      }
    }
    if (!ended) return;
    if (!begun_) continue;  // an answer replaced the plan
    Entry done{.event = Event::done, .rule = plan_.rule, .actions = {action}, .index = index};
    if (action == Action::exclude) done.nodes = plan_.nodes;
    if (action == Action::exclude_failing) done.nodes = failing_;
    write(std::move(done));
    if (starts_job(action)) return;  // what is seen is of the start before
  }
}

bool Guard::act(Action action, const Observation& seen) {
  switch (action) {
    case Action::alert:
      adaptor_.alert(plan_.text());
      return true;
    case Action::save_evidence:
      adaptor_.save_evidence(decided_entry_);
      return true;
    case Action::stop:
      return stop_job(seen);
    case Action::burn_in:
      return test_suspects();
    case Action::ask:
      return ask_person(seen);
    default:  // leaving nodes out begins with the next start
      return !starts_job(action) || start_job(action, seen);
  }
}

bool Guard::stop_job(const Observation& seen) {
  if (seen.job == JobState::ended || seen.job == JobState::absent) return true;
  if (killed_at_ && now_ - *killed_at_ >= options_.stop_seconds)
    fail("the job still runs {:.0f} s after it was killed; end it by hand, then answer", now_ - *killed_at_);
  // A job that has been silent for so long does not save any more.
  const bool late = now_ - std::min(acted_since_, tracker_.last_progress()) >= options_.stop_seconds;
  if (!stopping_ || (late && !killed_at_)) adaptor_.stop(late);
  if (late && !killed_at_) killed_at_ = now_;
  stopping_ = true;
  return false;
}

bool Guard::test_suspects() {
  if (plan_.nodes.empty()) return true;
  const auto failing = adaptor_.burn_in(plan_.nodes);
  if (!failing) return false;
  failing_ = *failing;
  return true;
}

StartRequest Guard::request_of(Action action, const Observation& seen) {
  StartRequest r{.number = starts_ + 1, .excluded = {excluded_.begin(), excluded_.end()}};
  r.fewer = action == Action::shrink;
  if (action != Action::rewind && action != Action::skip) return r;
  const int64_t trouble = plan_.trouble_step > 0 ? plan_.trouble_step : std::max<int64_t>(1, seen.first.step);
  for (const int64_t step : seen.checkpoints)
    if (step < trouble) r.from_step = step;
  // A run without any begins again.
  if (r.from_step < 0 && !(action == Action::rewind && seen.checkpoints.empty()))
    fail("no complete checkpoint is from before step {}", trouble);
  const int64_t last = seen.failure && seen.failure->step > 0 ? seen.failure->step : seen.first.step;
  if (action == Action::skip) r.skip_batches = std::max<int64_t>(1, last - r.from_step);
  return r;
}

bool Guard::start_job(Action action, const Observation& seen) {
  if (requested_ == starts_ && seen.start > starts_) requested_ = seen.start;  // by a guard before this one
  if (requested_ == starts_) {
    const StartRequest request = request_of(action, seen);
    adaptor_.start(request);
    requested_ = request.number;
    return false;
  }
  if (seen.start < requested_) return false;  // waits for a node
  const bool runs = seen.job == JobState::running && seen.first.start_step >= 0;
  if (!runs && seen.job != JobState::ended) return false;
  starts_ = requested_;
  write({.event = Event::job, .rule = plan_.rule, .value = starts_});
  if (plan_.rule != kFirstStart && runs)
    books_.count_fault(plan_.rule, detect_seconds_, now_ - acted_since_,
                       std::max<int64_t>(0, step_at_decision_ - seen.first.start_step));
  return true;
}

bool Guard::ask_person(const Observation& seen) {
  const auto answer = adaptor_.ask(decided_entry_, plan_.text());
  if (!answer) return false;
  std::vector<Action> actions = *answer;
  if (any_starts(actions) && !contains(actions, Action::stop)) actions.insert(actions.begin(), Action::stop);
  if (actions.empty()) actions = {Action::wait};
  if (seen.job != JobState::running) books_.spend(Cause::person, ms());
  write({.event = Event::answered, .rule = plan_.rule, .actions = std::move(actions), .nodes = plan_.nodes});
  return true;
}

}  // namespace ingot::guard
