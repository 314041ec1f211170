// See communicator.h: the calls of the interface, and the group of one rank.
#include "comm/communicator.h"

#include "base/clock.h"
#include "base/processor_time.h"
#include "comm/staged.h"

namespace ingot {
namespace {

thread_local WaitListener* listener = nullptr;

class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(std::string name) : Communicator(std::move(name), 0, 1) {}

 private:
  Pending start(CommRequest request) override {
    run_collective({&request, 1});
    return {};
  }
  Pending start_message(const Tensor&, int peer, bool sends) override {
    fail("group '{}' has one rank; it cannot {} rank {}", name(), sends ? "send to" : "receive from", peer);
  }
};

}  // namespace

WaitListener::WaitListener(std::function<void(const WaitSpan&)> callback)
    : callback_(std::move(callback)), previous_(listener) {
  listener = this;
}
WaitListener::~WaitListener() {
  listener = previous_;
}

void Pending::wait() {
  const auto state = std::move(state_);
  if (state == nullptr) return;
  if (listener == nullptr) return state->wait();
  const double begin = monotonic_seconds(), busy = processor_seconds();
  state->wait();
  const WaitSpan span{begin, monotonic_seconds(), processor_seconds() - busy};
  for (const WaitListener* l = listener; l != nullptr; l = l->previous_) l->callback_(span);
}

std::string CommRequest::str() const {
  if (kind == CommKind::barrier) return name_of(kind);
  return fmt::format("{} {} -> {}", name_of(kind), in.meta.str(), out.meta.str());
}

Pending Communicator::start_anywhere(CommRequest request) {
  if (!needs_staging(request.in) && !needs_staging(request.out)) return start(std::move(request));
  return start_staged(request.in, request.out, [&](const Tensor& in, const Tensor& out) {
    request.in = in, request.out = out;
    return start(std::move(request));
  });
}

Pending Communicator::start_message_anywhere(const Tensor& tensor, int peer, bool sends) {
  if (!needs_staging(tensor)) return start_message(tensor, peer, sends);
  return start_staged(
      sends ? tensor : Tensor(), sends ? Tensor() : tensor,
      [&](const Tensor& in, const Tensor& out) { return start_message(sends ? in : out, peer, sends); });
}

Pending Communicator::all_reduce(const Tensor& in, const Tensor& out) {
  return start_anywhere({CommKind::all_reduce, in, out, 0, {}, {}});
}
Pending Communicator::reduce_scatter(const Tensor& in, const Tensor& out) {
  return start_anywhere({CommKind::reduce_scatter, in, out, 0, {}, {}});
}
Pending Communicator::reduce_scatter(const Tensor& in, std::span<const int64_t> rows, const Tensor& out) {
  return start_anywhere({CommKind::reduce_scatter, in, out, 0, {rows.begin(), rows.end()}, {}});
}
Pending Communicator::all_gather(const Tensor& in, const Tensor& out) {
  return start_anywhere({CommKind::all_gather, in, out, 0, {}, {}});
}
Pending Communicator::broadcast(const Tensor& tensor, int root) {
  INGOT_CHECK(root >= 0 && root < size_, "root {} of {}", root, size_);
  return start_anywhere({CommKind::broadcast, tensor, tensor, root, {}, {}});
}
Pending Communicator::all_to_all(const Tensor& in, std::span<const int64_t> in_rows, const Tensor& out,
                                 std::span<const int64_t> out_rows) {
  return start_anywhere({CommKind::all_to_all,
                         in,
                         out,
                         0,
                         {in_rows.begin(), in_rows.end()},
                         {out_rows.begin(), out_rows.end()}});
}
Pending Communicator::send(const Tensor& tensor, int to) {
  INGOT_CHECK(to >= 0 && to < size_, "rank {} of {}", to, size_);
  return start_message_anywhere(tensor, to, true);
}
Pending Communicator::recv(const Tensor& tensor, int from) {
  INGOT_CHECK(from >= 0 && from < size_, "rank {} of {}", from, size_);
  return start_message_anywhere(tensor, from, false);
}
void Communicator::barrier() {
  start({}).wait();
}

std::unique_ptr<Communicator> self_communicator(std::string name) {
  return std::make_unique<SelfCommunicator>(std::move(name));
}

}  // namespace ingot
