// See threads.h. One lock guards all groups of a world: this backend is for tests, not for
// speed.
#include "comm/threads.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/parallel.h"

namespace ingot {
namespace {

/// One operation of a group: `members` must arrive, then it is complete or failed.
struct Meeting {
  enum class State { gathering, complete, failed } state = State::gathering;
  std::vector<int> members;  ///< ranks in the group
  std::vector<CommRequest> requests;
  std::vector<bool> here;
  size_t arrived = 0;
  std::string error, hint;
};

/// Collectives have from = to = -1.
struct MeetingKey {
  int from, to;
  int64_t number;
  auto operator<=>(const MeetingKey&) const = default;
};

struct Group {
  std::string name;
  std::vector<int> ranks;      ///< in the world
  std::vector<size_t> flight;  ///< per rank: this group in its flight recorder
  std::map<MeetingKey, std::shared_ptr<Meeting>> meetings;
  std::vector<std::string> last;  ///< per rank: its newest operation
};

}  // namespace

class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks) : ended_(static_cast<size_t>(ranks)) {}

  std::unique_ptr<Communicator> join(std::string name, const std::vector<int>& members, ThreadRank& self);
  std::shared_ptr<Meeting> arrive(Group& group, const MeetingKey& key, std::vector<int> members, int rank,
                                  CommRequest request);
  void wait(ThreadRank& self, Group& group, Meeting& meeting, const std::string& what);
  /// Operations of peers that still need this rank fail.
  void withdraw(Group& group, Meeting& meeting, int rank, const Operation& operation);
  void end(int rank) {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<size_t>(rank)] = true;
    changed_.notify_all();
  }
  void stop(int rank, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) {
      error_ = std::move(error);
      stopped_ = fmt::format("rank {} stopped with an error", rank);
    }
    changed_.notify_all();
  }
  std::exception_ptr error() const { return error_; }

 private:
  std::string missing(const Group& group, const Meeting& meeting, bool ended_only) const;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::string, std::vector<int>>, std::unique_ptr<Group>> groups_;
  std::vector<bool> ended_;
  std::exception_ptr error_;
  std::string stopped_;
};

namespace {

class ThreadPending final : public Pending::State {
 public:
  ThreadPending(ThreadWorld& world, ThreadRank& self, Group& group, std::shared_ptr<Meeting> meeting,
                int rank, const Operation& operation)
      : world_(world),
        self_(self),
        group_(group),
        meeting_(std::move(meeting)),
        rank_(rank),
        operation_(operation),
        ticket_(self.flight().begin(group.flight[static_cast<size_t>(rank)], operation)) {}
  ~ThreadPending() override { world_.withdraw(group_, *meeting_, rank_, operation_); }
  void wait() override {
    self_.flight().mark(ticket_, FlightState::waiting);
    try {
      world_.wait(self_, group_, *meeting_, operation_.str(group_.name));
    } catch (const Error&) {
      self_.flight().mark(ticket_, FlightState::failed);
      throw;
    }
    self_.flight().mark(ticket_, FlightState::complete);
  }

 private:
  ThreadWorld& world_;
  ThreadRank& self_;
  Group& group_;
  std::shared_ptr<Meeting> meeting_;
  int rank_;
  Operation operation_;
  FlightRecorder::Ticket ticket_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadWorld& world, ThreadRank& self, Group& group, int rank)
      : Communicator(group.name, rank, static_cast<int>(group.ranks.size())),
        world_(world),
        self_(self),
        group_(group) {}

 private:
  Pending start(CommRequest request) override {
    std::vector<int> members;
    for (int r = 0; r < size(); ++r) members.push_back(r);
    const int64_t number = next_++;
    return meet({-1, -1, number}, std::move(members), std::move(request), {.number = number});
  }
  Pending start_message(const Tensor& tensor, int peer, bool sends) override {
    INGOT_CHECK(peer != rank(), "rank {} of '{}' sends to itself", peer, name());
    const int from = sends ? rank() : peer, to = sends ? peer : rank();
    const int64_t number = next_message_[{from, to}]++;
    return meet({from, to, number}, {from, to}, {CommKind::send_recv, tensor, tensor, 0, {}, {}},
                {.number = number, .peer = peer, .sends = sends});
  }
  Pending meet(const MeetingKey& key, std::vector<int> members, CommRequest request, Operation operation) {
    operation.kind = request.kind;
    operation.in = request.in.meta;
    operation.out = request.out.meta;
    operation.step = self_.step();
    auto meeting = world_.arrive(group_, key, std::move(members), rank(), std::move(request));
    return Pending(
        std::make_unique<ThreadPending>(world_, self_, group_, std::move(meeting), rank(), operation));
  }

  ThreadWorld& world_;
  ThreadRank& self_;
  Group& group_;
  int64_t next_ = 0;
  std::map<std::pair<int, int>, int64_t> next_message_;
};

void run(Meeting& m) {
  if (m.requests[0].kind != CommKind::send_recv) return run_collective(m.requests);
  const Tensor &from = m.requests[0].in, &to = m.requests[1].in;
  if (!(from.shape() == to.shape()) || from.dtype() != to.dtype())
    fail("rank {} sends {}, rank {} receives {}", m.members[0], from.meta.str(), m.members[1], to.meta.str());
  // A message is a broadcast between two.
  for (CommRequest& r : m.requests) r.kind = CommKind::broadcast;
  run_collective(m.requests);
}

}  // namespace

std::unique_ptr<Communicator> ThreadWorld::join(std::string name, const std::vector<int>& members,
                                                ThreadRank& self) {
  const auto at = std::find(members.begin(), members.end(), self.rank());
  INGOT_CHECK(at != members.end() && std::is_sorted(members.begin(), members.end()), "group '{}' of rank {}",
              name, self.rank());
  if (members.size() == 1) return self_communicator(std::move(name));
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Group>& group = groups_[{name, members}];
  if (!group) {
    group = std::make_unique<Group>();
    group->name = name;
    group->ranks = members;
    group->last.assign(members.size(), "nothing yet");
    group->flight.resize(members.size());
  }
  const auto rank = static_cast<int>(at - members.begin());
  group->flight[static_cast<size_t>(rank)] = self.flight().add_group(name, members);
  return std::make_unique<ThreadCommunicator>(*this, self, *group, rank);
}

std::shared_ptr<Meeting> ThreadWorld::arrive(Group& group, const MeetingKey& key, std::vector<int> members,
                                             int rank, CommRequest request) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Meeting>& slot = group.meetings[key];
  if (!slot) {
    slot = std::make_shared<Meeting>();
    slot->requests.resize(members.size());
    slot->here.resize(members.size());
    slot->members = std::move(members);
  }
  const std::shared_ptr<Meeting> m = slot;
  const auto position =
      static_cast<size_t>(std::find(m->members.begin(), m->members.end(), rank) - m->members.begin());
  INGOT_CHECK(position < m->members.size() && !m->here[position], "rank {} arrives twice", rank);
  group.last[static_cast<size_t>(rank)] = fmt::format("{} #{}", request.str(), key.number);
  m->requests[position] = std::move(request);
  m->here[position] = true;
  if (++m->arrived < m->members.size() || m->state == Meeting::State::failed) return m;
  try {
    run(*m);
    m->state = Meeting::State::complete;
  } catch (const Error& e) {
    m->state = Meeting::State::failed;
    m->error = e.what();
    m->hint = e.hint();
  }
  group.meetings.erase(key);
  changed_.notify_all();
  return m;
}

std::string ThreadWorld::missing(const Group& group, const Meeting& m, bool ended_only) const {
  std::string text;
  for (size_t i = 0; i < m.members.size(); ++i) {
    const auto in_group = static_cast<size_t>(m.members[i]);
    const bool ended = ended_[static_cast<size_t>(group.ranks[in_group])];
    if (m.here[i] || (ended_only && !ended)) continue;
    text += fmt::format("{}rank {} ({}; last started: {})", text.empty() ? "" : ", ", group.ranks[in_group],
                        ended ? "it has returned" : "still running", group.last[in_group]);
  }
  return text;
}

void ThreadWorld::wait(ThreadRank& self, Group& group, Meeting& m, const std::string& what) {
  const auto begin = std::chrono::steady_clock::now();
  const CommLimits limits = self.limits();
  const std::string who = fmt::format("rank {} in {}", self.rank(), what);
  std::unique_lock lock(mutex_);
  std::string gone;
  const auto over_within = [&](double seconds) {
    return changed_.wait_until(lock, begin + std::chrono::duration<double>(seconds), [&] {
      if (m.state != Meeting::State::gathering || !stopped_.empty()) return true;
      return !(gone = missing(group, m, true)).empty();
    });
  };
  bool in_time = over_within(std::min(limits.report_seconds, limits.abort_seconds));
  if (!in_time && limits.report_seconds < limits.abort_seconds) {
    const std::string report = fmt::format("{}: waits for {:.3g} s; missing: {}", who, limits.report_seconds,
                                           missing(group, m, false));
    lock.unlock();
    log::warn("{}", report);
    self.write_flight(report);
    lock.lock();
    in_time = over_within(limits.abort_seconds);
  }
  if (m.state == Meeting::State::complete) return;
  if (m.state == Meeting::State::failed) throw Error(fmt::format("{}: {}", who, m.error), m.hint);
  const bool late = stopped_.empty() && !in_time;
  const std::string why = !stopped_.empty() ? stopped_
                          : in_time         ? fmt::format("it will never complete; missing: {}", gone)
                                            : fmt::format("not complete after {} s; missing: {}",
                                                          limits.abort_seconds, missing(group, m, false));
  m.state = Meeting::State::failed;  // no rank may touch this rank's tensors any more
  m.error = fmt::format("rank {} gave up: {}", self.rank(), why);
  m.hint = late ? "find out why the missing ranks did not come; a slow machine needs a longer deadline" : "";
  throw Error(fmt::format("{}: {}", who, why), m.hint);
}

void ThreadWorld::withdraw(Group& group, Meeting& m, int rank, const Operation& operation) {
  const std::lock_guard lock(mutex_);
  if (m.state != Meeting::State::gathering) return;
  m.state = Meeting::State::failed;
  m.error = fmt::format("rank {} withdrew from {}", group.ranks[static_cast<size_t>(rank)],
                        operation.str(group.name));
  changed_.notify_all();
}

std::unique_ptr<Communicator> ThreadRank::group(std::string name, const std::vector<int>& members) {
  return world_.join(std::move(name), members, *this);
}

void run_ranks(int ranks, const std::function<void(ThreadRank&)>& fn, double deadline_seconds) {
  INGOT_CHECK(ranks >= 1, "ranks = {}", ranks);
  ThreadWorld world(ranks);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        const ScopedThreads inline_kernels(1);
        ThreadRank self(world, r, ranks);
        self.set_limits({CommLimits{}.report_seconds, deadline_seconds});
        try {
          fn(self);
        } catch (const std::exception& e) {
          world.stop(r, std::current_exception());
          self.write_flight(e.what());
        }
        world.end(r);
      });
  }
  if (world.error()) std::rethrow_exception(world.error());
}

}  // namespace ingot
