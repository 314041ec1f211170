// Communication among the ranks of one group. Backends: self (one rank, here), threads (comm/threads.h), and
// messages between processes (comm/messages.h).
//
// Every operation starts at once and returns a Pending; its tensors must stay alive and untouched until
// wait() returns. Collectives of a group are numbered in the order in which each rank starts them; the ranks
// must start the same ones, with the same type and fitting shapes: anything else is an Error that names both.
// Nothing waits for ever: after a deadline wait() throws an Error with rank, operation, number, and the ranks
// that are missing. Sums add in rank order, element by element: f64 and i32 in their own type, f32 and bf16
// in fp32 with one rounding at the end. So they do not depend on timing, and every rank gets the same bits.
// Sizes of zero are legal. Tensors may lie on a device, whose memory no transport takes yet: they are staged
// (comm/staged.h). A communicator belongs to one thread.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/enum.h"
#include "tensor/tensor.h"

namespace ingot {

enum class CommKind : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  barrier,
  send_recv
};
constexpr auto enum_names(CommKind) {
  return names_in_order<CommKind>("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all",
                                  "barrier", "send_recv");
}

/// What one rank asks for. Row counts are along the first dimension.
struct CommRequest {
  CommKind kind = CommKind::barrier;
  Tensor in, out;
  int root = 0;  ///< broadcast
  /// all_to_all: per peer. reduce_scatter: in_rows are each rank's; empty: the same for all.
  std::vector<int64_t> in_rows, out_rows;
  std::string str() const;  ///< "all_reduce f64[4] -> f64[4]"
};

/// Handle of an operation in flight. Dropping one that was not waited for withdraws it: if peers have not
/// completed it, theirs fails.
class Pending {
 public:
  class State {
   public:
    virtual ~State() = default;  ///< withdraws
    virtual void wait() = 0;
  };
  Pending() = default;  ///< complete
  explicit Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}
  /// Returns when the operation is complete; throws Error when it never will be.
  void wait();

 private:
  std::unique_ptr<State> state_;
};

/// A wait for other ranks.
struct WaitSpan {
  double begin, end;  ///< by monotonic_seconds()
  double processor;   ///< seconds of processors that the process used meanwhile: to move data, and to look
};

/// While it lives, calls `callback` after every wait of its thread for other ranks. Listeners of a thread are
/// all called, the newest first.
class WaitListener {
 public:
  explicit WaitListener(std::function<void(const WaitSpan&)> callback);
  ~WaitListener();
  WaitListener(const WaitListener&) = delete;
  WaitListener& operator=(const WaitListener&) = delete;

 private:
  friend class Pending;
  const std::function<void(const WaitSpan&)> callback_;
  WaitListener* const previous_;
};

class Communicator {
 public:
  Communicator(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  ///< in the group
  int size() const { return size_; }

  /// out = sum of all ranks' in; out may be in.
  [[nodiscard]] Pending all_reduce(const Tensor& in, const Tensor& out);
  /// in [size * r, ...]: out [r, ...] = this rank's rows of the sum.
  [[nodiscard]] Pending reduce_scatter(const Tensor& in, const Tensor& out);
  /// The same with rows[p] rows for rank p, in rank order; all ranks give the same.
  [[nodiscard]] Pending reduce_scatter(const Tensor& in, std::span<const int64_t> rows, const Tensor& out);
  /// in [r, ...]: out [size * r, ...] = all ranks' rows in rank order.
  [[nodiscard]] Pending all_gather(const Tensor& in, const Tensor& out);
  /// Every rank's tensor gets the values of the root's.
  [[nodiscard]] Pending broadcast(const Tensor& tensor, int root);
  /// in_rows[p] rows go to rank p, out_rows[p] rows come from it, both packed in rank order. Rows of in and
  /// out beyond the sums are padding: in's are not read, out's become zero.
  [[nodiscard]] Pending all_to_all(const Tensor& in, std::span<const int64_t> in_rows, const Tensor& out,
                                   std::span<const int64_t> out_rows);
  /// Messages from one rank to another arrive in the order of their sends.
  [[nodiscard]] Pending send(const Tensor& tensor, int to);
  [[nodiscard]] Pending recv(const Tensor& tensor, int from);
  /// Waits until all ranks of the group have called it.
  void barrier();
  /// Moves the data of operations that have begun along, of all groups of its world, and waits for nothing.
  /// Where data move only while a rank is in an operation (comm/messages.h), one that computes calls it now
  /// and then: else others wait for it. Throws Error as Pending::wait() does.
  virtual void progress() {}
  /// For dry runs: starts nothing; the Pending is waited for like that of an operation.
  [[nodiscard]] virtual Pending dry_run() { return {}; }

 protected:
  virtual Pending start(CommRequest request) = 0;
  /// peer: the receiver of a send, or the sender of a receive.
  virtual Pending start_message(const Tensor& tensor, int peer, bool sends) = 0;
  /// For communicators that wrap another one.
  static Pending start_on(Communicator& inner, CommRequest request) {
    return inner.start(std::move(request));
  }
  static Pending start_message_on(Communicator& inner, const Tensor& tensor, int peer, bool sends) {
    return inner.start_message(tensor, peer, sends);
  }

 private:
  /// start() and start_message() for tensors anywhere.
  Pending start_anywhere(CommRequest request);
  Pending start_message_anywhere(const Tensor& tensor, int peer, bool sends);

  std::string name_;
  int rank_, size_;
};

/// The group of one rank.
std::unique_ptr<Communicator> self_communicator(std::string name);

/// Executes one collective for all ranks of the group at once, in one address space. `requests` are in rank
/// order. Throws Error when they do not fit together.
void run_collective(std::span<const CommRequest> requests);

}  // namespace ingot
