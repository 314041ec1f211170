// Communicators over point-to-point messages; comm/mpi_world.h builds on them.
//
// Every collective is a direct exchange: each rank of the group sends each other rank a header (operation,
// type, shapes, number, step; small data are inlined), and then its data. So every rank checks every other's
// request, knows which ranks have started and which are missing, and computes sums itself in rank order:
// reduce_scatter is an exchange of pieces and a local sum; all_reduce adds a gather of the sums. Both work in
// chunks, so that a sum needs little memory and overlaps with the transfer of the next chunk. Data move while
// an operation of this world starts or waits, and in progress(), which tapes call before every op.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/world.h"

namespace ingot {

/// Messages among the ranks of one group; ranks count in the group. Messages of one sender, receiver and tag
/// (0..32767) arrive in the order of their sends. Memory must stay alive until its request is done.
class Transport {
 public:
  using Request = uint64_t;
  virtual ~Transport() = default;
  virtual Request send(int to, int tag, const void* data, int64_t bytes) = 0;
  virtual Request recv(int from, int tag, void* data, int64_t bytes) = 0;
  /// Moves data along; true, once, when the request is done.
  virtual bool done(Request request) = 0;
};

class Exchange;

/// A world whose groups communicate over a Transport. Belongs to one thread.
class MessageWorld : public World {
 public:
  ~MessageWorld() override;
  std::unique_ptr<Communicator> group(std::string name, const std::vector<int>& members) override;

  /// Called by communicators: an operation begins, is waited for, or is dropped without a wait.
  void start(std::unique_ptr<Exchange> exchange);
  void wait(Exchange& exchange);
  void drop(Exchange& exchange);
  /// Advances all operations as far as possible without waiting.
  void progress();
  /// Throws again the Error with which an operation failed before: after it the ranks cannot be in step any
  /// more, and no rank must wait for a second deadline.
  void require_whole() const;

 protected:
  /// `crowded`: the node has more threads of ranks than cores for them.
  MessageWorld(int rank, int ranks, bool crowded);
  virtual std::unique_ptr<Transport> connect(const std::string& name, const std::vector<int>& members) = 0;
  /// Whether that rank of the world has returned, or failed: it will start no more operations.
  virtual bool has_left(int rank) = 0;
  virtual bool has_failed(int rank) = 0;
  /// Ends all ranks with this message.
  [[noreturn]] virtual void end_all(const std::string& message) = 0;
  /// "rank 2 has failed", or nothing.
  std::string failed_rank();
  /// Whether the network may still read or write memory of an operation that nobody will wait for.
  bool memory_in_use() const { return !in_flight_.empty(); }
  /// What this rank waits for, and for which ranks; empty when it does not wait, or not for long yet. Any
  /// thread.
  std::string waiting() const;

 private:
  std::string missing(const Exchange& exchange);
  bool never_completes(const Exchange& exchange);
  /// State of one wait.
  struct WaitState {
    bool reported = false;  ///< a warning has been logged
    bool gone = false;      ///< at the last look a rank that must start the operation had returned
  };
  void check_wait(Exchange& exchange, double waited, WaitState& state);
  void set_waiting(std::string text);
  [[noreturn]] void break_with(const Error& error);
  const bool crowded_;
  std::list<std::unique_ptr<Exchange>> in_flight_;
  std::optional<Error> broken_;
  mutable std::mutex mutex_;
  std::string waiting_;  // guarded by mutex_
};

}  // namespace ingot
