// See messages.h: communicators and waiting. What an operation sends is in exchange.cpp.
#include "comm/messages.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "comm/exchange.h"

namespace ingot {
namespace {

class MessagePending final : public Pending::State {
 public:
  MessagePending(MessageWorld& world, Exchange& exchange)
      : world_(world), exchange_(exchange), exceptions_(std::uncaught_exceptions()) {}
  ~MessagePending() override {
    // While an exception passes, the run ends anyway; what is in flight stays with the world.
    if (!waited_ && std::uncaught_exceptions() <= exceptions_) world_.drop(exchange_);
  }
  void wait() override {
    waited_ = true;
    world_.wait(exchange_);
  }

 private:
  MessageWorld& world_;
  Exchange& exchange_;
  int exceptions_;
  bool waited_ = false;
};

class MessageCommunicator final : public Communicator {
 public:
  MessageCommunicator(MessageWorld& world, MessageGroup group)
      : Communicator(group.name, group.rank, group.size()), world_(world), group_(std::move(group)) {}
  void progress() override { world_.progress(); }

 private:
  Pending start(CommRequest request) override { return add(std::move(request), next_++, -1, false); }
  Pending start_message(const Tensor& tensor, int peer, bool sends) override {
    INGOT_CHECK(peer != rank(), "rank {} of '{}' sends to itself", peer, name());
    const int64_t number = next_message_[{peer, sends}]++;
    return add({CommKind::send_recv, tensor, tensor, 0, {}, {}}, number, peer, sends);
  }
  Pending add(CommRequest request, int64_t number, int peer, bool sends) {
    world_.require_whole();
    const Operation operation{request.kind, request.in.meta, request.out.meta, number, world_.step(), peer,
                              sends};
    const FlightRecorder::Ticket ticket = world_.flight().begin(group_.flight, operation);
    auto exchange = std::make_unique<Exchange>(group_, std::move(request), operation, ticket);
    Exchange& e = *exchange;
    world_.start(std::move(exchange));
    return Pending(std::make_unique<MessagePending>(world_, e));
  }

  MessageWorld& world_;
  MessageGroup group_;
  int64_t next_ = 0;
  std::map<std::pair<int, bool>, int64_t> next_message_;
};

/// Between two polls of the network: first spins, then yields the core, then sleeps. Of ranks that share
/// cores none yields: Linux takes what is left of its turn from it, so that it would be late at its next
/// message by the other rank's whole turn, of some ms.
void pause(int polls, bool crowded) {
  if (polls < 16) return;
  if (polls < 2000 && !crowded)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

MessageWorld::MessageWorld(int rank, int ranks, bool crowded) : World(rank, ranks), crowded_(crowded) {}
MessageWorld::~MessageWorld() = default;

std::unique_ptr<Communicator> MessageWorld::group(std::string name, const std::vector<int>& members) {
  const auto at = std::find(members.begin(), members.end(), rank());
  INGOT_CHECK(at != members.end() && std::is_sorted(members.begin(), members.end()), "group '{}' of rank {}",
              name, rank());
  if (members.size() == 1) return self_communicator(std::move(name));
  MessageGroup group;
  group.name = name;
  group.members = members;
  group.rank = static_cast<int>(at - members.begin());
  group.last.assign(members.size(), "nothing yet");
  group.flight = flight().add_group(name, members);
  group.transport = connect(name, members);
  return std::make_unique<MessageCommunicator>(*this, std::move(group));
}

void MessageWorld::start(std::unique_ptr<Exchange> exchange) {
  in_flight_.push_back(std::move(exchange));
  progress();
}

void MessageWorld::progress() {
  for (const auto& exchange : in_flight_)
    if (!exchange->complete()) try {
        exchange->progress();
      } catch (const Error& e) {
        flight().mark(exchange->ticket(), FlightState::failed);
        break_with(Error(fmt::format("rank {} in {}: {}", rank(), exchange->what(), e.what()), e.hint()));
      }
}

/// The ranks that an operation waits for, what is missing of each, and where it was seen last.
std::string MessageWorld::missing(const Exchange& exchange) {
  const Awaited awaited = exchange.awaited();
  const char* what = awaited.what == Awaited::For::start  ? "still running"
                     : awaited.what == Awaited::For::data ? "it has come, but not all of its data"
                                                          : "it has not taken its data";
  std::string text;
  for (const int r : awaited.ranks) {
    const int in_world = exchange.group().members[static_cast<size_t>(r)];
    text += fmt::format("{}rank {} ({}; last seen in: {})", text.empty() ? "" : ", ", in_world,
                        has_left(in_world) ? "it has returned" : what,
                        exchange.group().last[static_cast<size_t>(r)]);
  }
  return text.empty() ? "nobody" : text;
}

/// Whether a rank that has to start this operation has left.
bool MessageWorld::never_completes(const Exchange& exchange) {
  const Awaited awaited = exchange.awaited();
  return awaited.what == Awaited::For::start &&
         std::any_of(awaited.ranks.begin(), awaited.ranks.end(),
                     [&](int r) { return has_left(exchange.group().members[static_cast<size_t>(r)]); });
}

void MessageWorld::wait(Exchange& exchange) {
  const double begin = monotonic_seconds();
  double next_check = begin + 0.001;  // of missing ranks and limits
  WaitState state;
  flight().mark(exchange.ticket(), FlightState::waiting);
  for (int polls = 0; !exchange.complete(); ++polls) {
    progress();
    if (exchange.complete()) break;
    pause(polls, crowded_);
    const double now = monotonic_seconds();
    if (now < next_check) continue;
    next_check = now + 0.05;
    check_wait(exchange, now - begin, state);
  }
  set_waiting("");
  flight().mark(exchange.ticket(), FlightState::complete);
  std::erase_if(in_flight_, [&](const auto& e) { return e.get() == &exchange; });
}

/// A failing rank notifies all others before the launcher ends them, so that each can report where it was.
std::string MessageWorld::failed_rank() {
  for (int r = 0; r < ranks(); ++r)
    if (has_failed(r)) return fmt::format("rank {} has failed", r);
  return "";
}

/// The notice that a rank has returned may overtake its messages, so it counts one check later.
void MessageWorld::check_wait(Exchange& exchange, double waited, WaitState& state) {
  const std::string who = fmt::format("rank {} in {}", rank(), exchange.what());
  const bool gone = never_completes(exchange), never = gone && state.gone;
  state.gone = gone;
  const std::string late = missing(exchange);
  set_waiting(fmt::format("{}; missing: {}", who, late));
  if (waited > limits().report_seconds && !state.reported) {
    state.reported = true;
    const std::string report = fmt::format("{}: waits for {:.3g} s; missing: {}", who, waited, late);
    log::warn("{}", report);
    write_flight(report);
  }
  const std::string failed = failed_rank();
  if (failed.empty() && !never && waited <= limits().abort_seconds) return;
  flight().mark(exchange.ticket(), FlightState::failed);
  if (!failed.empty()) break_with(Error(fmt::format("{}: {}; missing: {}", who, failed, late)));
  if (never) break_with(Error(fmt::format("{}: it will never complete; missing: {}", who, late)));
  break_with(Error(fmt::format("{}: not complete after {} s; missing: {}", who, limits().abort_seconds, late),
                   "find out why the missing ranks did not come; a slow machine needs a longer deadline"));
}

void MessageWorld::break_with(const Error& error) {
  if (!broken_) broken_ = error;
  throw error;
}

void MessageWorld::require_whole() const {
  if (broken_) throw *broken_;
}

void MessageWorld::set_waiting(std::string text) {
  const std::lock_guard lock(mutex_);
  waiting_ = std::move(text);
}

std::string MessageWorld::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

void MessageWorld::drop(Exchange& exchange) {
  progress();
  if (!exchange.complete()) end_all(fmt::format("rank {} withdrew from {}", rank(), exchange.what()));
  std::erase_if(in_flight_, [&](const auto& e) { return e.get() == &exchange; });
}

}  // namespace ingot
