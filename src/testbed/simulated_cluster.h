// A cluster that exists only as numbers: nodes, spares, storage, a job and a person, under a virtual clock.
// To a guard it is an adaptor like any other. It knows the truth, and checks what no guard may do.
#pragma once
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/philox.h"
#include "guard/adaptor.h"
#include "testbed/scenario.h"

namespace ingot::guard {

/// A fault that has begun.
struct ActiveFault {
  FaultKind kind = FaultKind::kill;
  std::string node;                  ///< empty: no node's fault
  int64_t at_ms = 0, shown_ms = -1;  ///< when it began, and when it first had an effect
  int64_t until_ms = INT64_MAX;
  int64_t step = -1;  ///< at which it strikes, of those that strike again
  int64_t strikes = 0;
  bool over = false;
  std::string first_decision;  ///< the first rule that decided while it showed
  bool asked = false;
};

class SimulatedCluster final : public Adaptor {
 public:
  SimulatedCluster(const Scenario& scenario, uint64_t stream);
  const Observation& observe() override;
  void start(const StartRequest& request) override;
  void stop(bool at_once) override;
  std::optional<std::vector<std::string>> burn_in(const std::vector<std::string>& nodes) override;
  void save_evidence(int64_t) override {}
  void alert(const std::string&) override {}
  std::optional<std::vector<Action>> ask(int64_t entry, const std::string&) override;

  /// Moves the clock; the job trains, saves and fails meanwhile.
  void advance_to(int64_t ms);
  int64_t now_ms() const { return now_; }
  /// Whether the next observations may differ from a quiet run's.
  bool unusual() const;
  /// When the next fault begins.
  int64_t next_fault_ms() const;
  /// Tells it what the guard decided, to compare with the truth.
  void heard(const std::string& rule, bool asks);

  const std::vector<ActiveFault>& faults() const { return faults_; }
  /// What a guard did that it must not do.
  const std::vector<std::string>& violations() const { return violations_; }
  double trained_seconds() const { return static_cast<double>(work_) / 1000; }
  int64_t questions() const { return questions_; }
  /// Guard kills that are due; the runner makes them happen.
  bool take_guard_kill() { return guard_kills_ > 0 && guard_kills_-- > 0; }

 private:
  struct Restore {
    int64_t work = 0;
    bool damaged = false;
  };
  bool in_use(const std::string& name) const { return index_.contains(name); }
  bool trains() const { return phase_ == Phase::training; }
  bool alive() const { return phase_ >= Phase::starting && phase_ <= Phase::training; }
  void begin_fault(const PlannedFault& fault);
  void begin_due_faults();
  /// Random, from 0 to 1, number `index`.
  double uniform(uint64_t index) const { return static_cast<double>(random_.bits(index)) * 0x1p-32; }
  void plan_random();
  void strike();
  void strike(ActiveFault& fault);
  void end_job(FailureKind kind, const std::string& node, int exit_code, const std::string& line);
  void train(int64_t ms);
  void try_to_place();
  void show(ActiveFault& fault);
  double speed() const;
  bool stalls() const;
  bool saves_fail() const;
  int64_t step_of(int64_t work) const { return work / step_; }
  bool active(FaultKind kind) const;

  const Scenario s_;
  const Random random_;
  uint64_t drawn_ = 0;
  int64_t now_ = 0;
  const int64_t step_, every_, pause_;
  Phase phase_ = Phase::none;
  int64_t phase_until_ = 0, started_training_ = 0, work_ = 0, in_pause_ = 0, since_save_ = 0;
  int64_t saved_at_ = 0, stalled_since_ = -1;
  std::vector<Restore> saved_;
  StartRequest request_;
  int64_t requested_ = 0;
  std::vector<std::string> placed_;
  bool moved_ = false;                                   // placed_ is not what index_ and the reports show
  std::deque<std::pair<int64_t, std::string>> repairs_;  // when, and of which excluded node
  std::map<std::string, size_t> index_;
  std::deque<std::string> spares_;
  std::vector<ActiveFault> faults_;
  std::vector<size_t> open_;       // faults that are not over
  std::vector<size_t> undecided_;  // those of which no decision was heard
  std::vector<size_t> touched_;    // nodes whose reports a fault changed
  std::deque<PlannedFault> planned_;
  double next_random_ = -1;
  int64_t wall_offset_ = 0;
  Observation seen_;
  std::vector<std::string> lines_;
  int64_t burn_until_ = -1;
  std::vector<std::string> burning_;
  std::map<int64_t, int64_t> asked_;  // entry -> when
  bool stop_asked_ = false;
  int64_t questions_ = 0, guard_kills_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace ingot::guard
