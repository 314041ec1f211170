// The guard of one job: looks, decides by its rules, acts step by step, and books the time. It never waits:
// tick() does what can be done now. All state that matters is in its store before an action begins, so a new
// guard continues wherever this one ended. Single-threaded.
#pragma once
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "guard/adaptor.h"
#include "guard/decide.h"
#include "guard/fact_tracker.h"
#include "guard/journal.h"

namespace ingot::guard {

struct GuardOptions {
  std::vector<Rule> rules;
  Scope scope;
  /// Between asking the job to end and ending it, and then until a person is asked.
  double stop_seconds = 120;
  bool only_restarts = false;  ///< for comparisons: no rules, a restart when the job has ended
};

class Guard {
 public:
  /// Reads what the store has of an earlier guard.
  Guard(GuardOptions options, Adaptor& adaptor, Store& store);
  /// One look, and what follows from it.
  void tick();
  bool finished() const { return finished_; }
  /// Whether an action is under way, or a person is asked.
  bool busy() const { return !plan_.actions.empty(); }
  bool asks() const { return busy() && plan_.actions[index_] == Action::ask; }
  const Books& books() const { return books_; }
  const std::set<std::string>& excluded() const { return excluded_; }
  const FactTracker& tracker() const { return tracker_; }
  double now() const { return now_; }  ///< seconds of its clock at the last look
  /// Called with every entry that it writes.
  void on_entry(std::function<void(const Entry&)> listener) { listener_ = std::move(listener); }

 private:
  void go_on(const std::vector<Entry>& entries);
  /// Puts an entry into the journal, and applies it.
  void write(Entry entry);
  /// Changes plan and past to what an entry says, of this guard or of one before it.
  void apply(const Entry& entry);
  void look(const Observation& seen);
  void book(const Observation& seen);
  /// `situation`: none where the guard itself decides, without rules.
  void begin(const Decision& decision, const std::optional<Situation>& situation);
  void advance(const Observation& seen);
  /// True when the action has ended.
  bool act(Action action, const Observation& seen);
  bool stop_job(const Observation& seen);
  bool test_suspects();
  bool start_job(Action action, const Observation& seen);
  bool ask_person(const Observation& seen);
  StartRequest request_of(Action action, const Observation& seen);
  int64_t ms() const { return static_cast<int64_t>(now_ * 1000 + 0.5); }

  GuardOptions options_;
  Adaptor& adaptor_;
  Store& store_;
  FactTracker tracker_;
  Books books_;
  std::vector<PastMatch> past_;
  std::set<std::string> matching_, excluded_;
  Decision plan_;  // actions empty: none
  size_t index_ = 0;
  bool begun_ = false;         // the action at index_ has an entry
  int64_t decided_entry_ = 0;  // number of the entry that made plan_
  double acted_since_ = 0, now_ = 0;
  std::optional<double> killed_at_;
  bool stopping_ = false, waits_ = false, asked_running_ = false;
  std::vector<std::string> failing_;
  int64_t entries_ = 0, starts_ = 0, requested_ = 0;
  int64_t seen_start_ = 0;     // whose fall back is booked
  double saved_seconds_ = 0;   // of the present start, booked
  double detect_seconds_ = 0;  // of the present decision
  int64_t step_at_decision_ = -1;
  bool finished_ = false;
  std::function<void(const Entry&)> listener_;
};

}  // namespace ingot::guard
