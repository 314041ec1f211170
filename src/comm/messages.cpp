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
    // While an exception passes, the run ends anyway; what is under way stays with the world.
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

 private:
  Pending start(CommRequest request) override { return add(std::move(request), next_++, -1, false); }
  Pending start_message(const Tensor& tensor, int peer, bool sends) override {
    INGOT_CHECK(peer != rank(), "rank {} of '{}' sends to itself", peer, name());
    const int64_t number = next_message_[{peer, sends}]++;
    return add({CommKind::send_recv, tensor, tensor, 0, {}, {}}, number, peer, sends);
  }
  Pending add(CommRequest request, int64_t number, int peer, bool sends) {
    auto exchange = std::make_unique<Exchange>(group_, std::move(request), number, world_.step(), peer, sends);
    Exchange& e = *exchange;
    world_.start(std::move(exchange));
    return Pending(std::make_unique<MessagePending>(world_, e));
  }

  MessageWorld& world_;
  MessageGroup group_;
  int64_t next_ = 0;
  std::map<std::pair<int, bool>, int64_t> next_message_;
};

/// Between two looks at the network: at once at first, then other processes may have the core, then it sleeps.
void pause(int looks) {
  if (looks < 16) return;
  if (looks < 2000) std::this_thread::yield();
  else std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

MessageWorld::MessageWorld(int rank, int ranks) : World(rank, ranks) {}
MessageWorld::~MessageWorld() = default;

std::unique_ptr<Communicator> MessageWorld::group(std::string name, const std::vector<int>& members) {
  const auto at = std::find(members.begin(), members.end(), rank());
  INGOT_CHECK(at != members.end() && std::is_sorted(members.begin(), members.end()), "group '{}' of rank {}", name, rank());
  if (members.size() == 1) return self_communicator(std::move(name));
  std::unique_ptr<Transport> transport = connect(name, members);
  return std::make_unique<MessageCommunicator>(
      *this, MessageGroup{std::move(name), members, static_cast<int>(at - members.begin()), std::move(transport),
                          std::vector<std::string>(members.size(), "nothing yet")});
}

void MessageWorld::start(std::unique_ptr<Exchange> exchange) {
  under_way_.push_back(std::move(exchange));
  progress();
}

void MessageWorld::progress() {
  for (const auto& exchange : under_way_)
    if (!exchange->complete()) try {
        exchange->progress();
      } catch (const Error& e) {
        throw Error(fmt::format("rank {} in {}: {}", rank(), exchange->what(), e.what()), e.hint());
      }
}

std::string MessageWorld::missing(Exchange& exchange, bool left_only) {
  const MessageGroup& group = exchange.group();
  std::string text;
  for (const int r : exchange.missing()) {
    const int in_world = group.members[static_cast<size_t>(r)];
    const bool left = has_left(in_world);
    if (left_only && !left) continue;
    text += fmt::format("{}rank {} ({}; last seen in: {})", text.empty() ? "" : ", ", in_world,
                        left ? "it has returned" : "still running", group.last[static_cast<size_t>(r)]);
  }
  return text;
}

void MessageWorld::wait(Exchange& exchange) {
  const double begin = monotonic_seconds();
  double next_look = begin + 0.05;  // at who has left, and at the limits
  bool reported = false;
  for (int looks = 0; !exchange.complete(); ++looks) {
    progress();
    if (exchange.complete()) break;
    pause(looks);
    const double now = monotonic_seconds();
    if (now < next_look) continue;
    next_look = now + 0.05;
    const std::string who = fmt::format("rank {} in {}", rank(), exchange.what());
    const auto late = [&] {
      const std::string names = missing(exchange, false);
      return names.empty() ? std::string("all ranks have come, but their data have not") : "missing: " + names;
    };
    if (const std::string gone = missing(exchange, true); !gone.empty()) {
      progress();  // what it sent before it left may just have come
      if (const std::string still = missing(exchange, true); !still.empty())
        throw Error(fmt::format("{}: it will never complete; missing: {}", who, still));
    } else if (now - begin > limits().abort_seconds) {
      throw Error(fmt::format("{}: not complete after {} s; {}", who, limits().abort_seconds, late()),
                  "find out why the missing ranks did not come; a slow machine needs a longer deadline");
    } else if (!reported && now - begin > limits().report_seconds) {
      reported = true;
      log::warn("{}: waits for {:.3g} s; {}", who, now - begin, late());
    }
  }
  std::erase_if(under_way_, [&](const auto& e) { return e.get() == &exchange; });
}

void MessageWorld::drop(Exchange& exchange) {
  progress();
  if (!exchange.complete()) end_all(fmt::format("rank {} withdrew from {}", rank(), exchange.what()));
  std::erase_if(under_way_, [&](const auto& e) { return e.get() == &exchange; });
}

}  // namespace ingot
