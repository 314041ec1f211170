// See strands.h.
#include "parallel/strands.h"

#include <thread>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"

namespace ingot {
namespace {

thread_local int strand = 0;

}  // namespace

int Strands::current() {
  return strand;
}

class Strands::HandingOver final : public Communicator {
 public:
  HandingOver(Communicator& group, Strands& strands)
      : Communicator(group.name(), group.rank(), group.size()), group_(group), strands_(strands) {}

 private:
  class Waiting final : public Pending::State {
   public:
    Waiting(Pending pending, Strands& strands) : pending_(std::move(pending)), strands_(strands) {}
    void wait() override {
      strands_.hand_over();
      pending_.wait();
    }

   private:
    Pending pending_;
    Strands& strands_;
  };

  Pending wrap(Pending pending) {
    strands_.started_[strands_.turn_] = true;
    return Pending(std::make_unique<Waiting>(std::move(pending), strands_));
  }

  Pending start(CommRequest r) override {
    switch (r.kind) {
      case CommKind::all_reduce:
        return wrap(group_.all_reduce(r.in, r.out));
      case CommKind::reduce_scatter:
        return wrap(group_.reduce_scatter(r.in, r.out));
      case CommKind::all_gather:
        return wrap(group_.all_gather(r.in, r.out));
      case CommKind::broadcast:
        return wrap(group_.broadcast(r.in, r.root));
      case CommKind::all_to_all:
        return wrap(group_.all_to_all(r.in, r.in_rows, r.out, r.out_rows));
      case CommKind::barrier:
        group_.barrier();
        return {};
      case CommKind::send_recv:
        break;
    }
    INGOT_CHECK(false, "{}", r.str());
    return {};
  }
  Pending start_message(const Tensor& tensor, int peer, bool sends) override {
    return wrap(sends ? group_.send(tensor, peer) : group_.recv(tensor, peer));
  }
  Pending dry_run() override { return wrap({}); }

  Communicator& group_;
  Strands& strands_;
};

void Strands::run(const std::function<void()>& first, const std::function<void()>& second) {
  INGOT_CHECK(!running_, "strands inside a strand");
  running_ = true;
  turn_ = 0;
  ended_[0] = ended_[1] = false;
  error_ = nullptr;
  const auto to_the_end = [&](int which, const std::function<void()>& work) {
    std::exception_ptr error;
    try {
      if (!error_) work();
    } catch (...) {
      error = std::current_exception();
    }
    end(which, error);
  };
  std::thread other([&, threads = num_threads()] {
    const ScopedThreads as_first(threads);
    strand = 1;
    {
      std::unique_lock lock(mutex_);
      wait_for_turn(lock, 1);
    }
    to_the_end(1, second);
  });
  to_the_end(0, first);
  other.join();
  running_ = false;
  if (error_) std::rethrow_exception(error_);
}

void Strands::hand_over() {
  const int own = turn_, other = 1 - own;
  if (!std::exchange(started_[own], false)) return;
  ++waits_.all;
  if (!running_) return;
  std::unique_lock lock(mutex_);
  if (!ended_[other]) {
    ++waits_.hidden;
    turn_ = other;
    changed_.notify_all();
    wait_for_turn(lock, own);
  }
  if (error_) fail("the other strand of this rank failed");
}

void Strands::wait_for_turn(std::unique_lock<std::mutex>& lock, int which) {
  changed_.wait(lock, [&] { return turn_ == which; });
}

void Strands::end(int which, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error && !error_) error_ = std::move(error);
  ended_[which] = true;
  turn_ = 1 - which;
  changed_.notify_all();
}

Communicator* Strands::hand_over_waiting_for(Communicator* group) {
  if (group == nullptr) return nullptr;
  std::unique_ptr<Communicator>& wrapped = groups_[group];
  if (!wrapped) wrapped = std::make_unique<HandingOver>(*group, *this);
  return wrapped.get();
}

}  // namespace ingot
