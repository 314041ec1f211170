// See interleaved_passes.h.
#include "parallel/interleaved_passes.h"

#include <utility>

#include "base/error.h"
#include "parallel/rank_groups.h"

namespace ingot {
namespace {

thread_local int current_pass = 0;

}  // namespace

int InterleavedPasses::current() {
  return current_pass;
}

class InterleavedPasses::YieldingCommunicator final : public Communicator {
 public:
  YieldingCommunicator(Communicator& group, InterleavedPasses& passes)
      : Communicator(group.name(), group.rank(), group.size()),
        group_(group),
        passes_(passes),
        length_(wait_length(group.name())) {}

 private:
  class Waiting final : public Pending::State {
   public:
    Waiting(Pending pending, InterleavedPasses& passes, int length)
        : pending_(std::move(pending)), passes_(passes), length_(length) {}
    void wait() override {
      passes_.yield(length_);
      pending_.wait();
    }

   private:
    Pending pending_;
    InterleavedPasses& passes_;
    const int length_;
  };

  Pending wrap(Pending pending) {
    passes_.started_[passes_.turn_] = true;
    return Pending(std::make_unique<Waiting>(std::move(pending), passes_, length_));
  }

  Pending start(CommRequest request) override {
    if (request.kind != CommKind::barrier) return wrap(start_on(group_, std::move(request)));
    group_.barrier();
    return {};
  }
  Pending start_message(const Tensor& tensor, int peer, bool sends) override {
    return wrap(start_message_on(group_, tensor, peer, sends));
  }
  Pending dry_run() override { return wrap({}); }

  Communicator& group_;
  InterleavedPasses& passes_;
  const int length_;
};

void InterleavedPasses::run(const std::function<void()>& first, const std::function<void()>& second) {
  INGOT_CHECK(!running_, "run() inside of a pass");
  ended_[0] = ended_[1] = false;
  error_ = nullptr;
  second_.start([&] { run_pass(1, second); });
  running_ = true;
  run_pass(0, first);
  if (!ended_[1]) take_turn(1);
  running_ = false;
  if (error_) std::rethrow_exception(error_);
}

void InterleavedPasses::run_pass(int pass, const std::function<void()>& work) {
  try {
    if (!error_) work();
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
  ended_[pass] = true;
}

void InterleavedPasses::yield(int length) {
  const int own = turn_, other = 1 - own;
  if (!std::exchange(started_[own], false)) return;
  ++waits_.all;
  if (!running_) return;
  if (!ended_[other] && length >= waiting_[other]) {
    ++waits_.hidden;
    waiting_[own] = length;
    take_turn(other);
    waiting_[own] = 0;
  }
  if (error_) fail("the other pass of this rank failed");
}

/// Returns when the pass that calls it has its turn again.
void InterleavedPasses::take_turn(int pass) {
  turn_ = current_pass = pass;
  if (pass == 1)
    second_.enter();
  else
    second_.leave();
  turn_ = current_pass = 1 - pass;
}

Communicator* InterleavedPasses::yield_while_waiting(Communicator* group) {
  if (group == nullptr) return nullptr;
  std::unique_ptr<Communicator>& wrapped = groups_[group];
  if (!wrapped) wrapped = std::make_unique<YieldingCommunicator>(*group, *this);
  return wrapped.get();
}

}  // namespace ingot
