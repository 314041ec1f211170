// One operation of one rank over point-to-point messages: headers, then data, then (all_reduce) sums. See
// messages.h.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/messages.h"

namespace ingot {

/// What the operations of a group share.
struct MessageGroup {
  std::string name;
  std::vector<int> members;  ///< ranks in the world
  int rank = 0;              ///< in the group
  std::unique_ptr<Transport> transport;
  /// By rank of the group: the newest operation that it is known to have started, for error messages.
  std::vector<std::string> last;
  size_t flight = 0;  ///< its index in the flight recorder
  int size() const { return static_cast<int>(members.size()); }
};

/// The ranks of the group (ascending) that an operation waits for directly, and what is missing of them.
struct Awaited {
  enum class For { start, data, receipt };
  std::vector<int> ranks;  ///< empty: only this rank's own work is left
  For what = For::start;
};

class Exchange {
 public:
  /// Posts the first messages. `operation` describes `request` in the flight recorder.
  Exchange(MessageGroup& group, CommRequest request, const Operation& operation,
           FlightRecorder::Ticket ticket);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Advances as far as possible without waiting. True when complete. Throws Error on a mismatch.
  bool progress();
  bool complete() const { return complete_; }
  std::string what() const { return operation_.str(group_.name); }
  FlightRecorder::Ticket ticket() const { return ticket_; }
  const MessageGroup& group() const { return group_; }
  Awaited awaited() const;

 private:
  struct Header;
  struct Peer;
  struct Lane;
  struct Range {
    int64_t begin = 0, bytes = 0;
  };

  bool is_message() const { return operation_.peer >= 0; }
  bool reduces() const {
    return request_.kind == CommKind::all_reduce || request_.kind == CommKind::reduce_scatter;
  }
  bool sums_whole() const;
  Range piece_of(int rank) const;
  Range sent_to(int rank) const;
  Range received_from(int rank) const;
  int64_t chunks(const Range& range) const { return (range.bytes + chunk_ - 1) / chunk_; }
  std::byte* slot(size_t peer, int64_t chunk) const;
  std::byte* in(int64_t at) const { return static_cast<std::byte*>(request_.in.data) + at; }
  std::byte* out(int64_t at) const { return static_cast<std::byte*>(request_.out.data) + at; }
  bool owes_piece(const Peer& peer) const;
  bool owes_sums(const Peer& peer) const;
  std::vector<int> ranks_where(const std::function<bool(const Peer&)>& holds) const;
  void plan();
  void send_first(Peer& peer);
  void meet(Peer& peer);
  void receive(Peer& peer);
  void sum_next();
  void gather_sums(Peer& peer);
  void copy_own();

  MessageGroup& group_;
  CommRequest request_;
  const Operation operation_;
  const FlightRecorder::Ticket ticket_;
  std::vector<Peer> peers_;
  int64_t chunk_ = 0;
  int64_t summed_ = 0;                    // chunks of this rank's own piece
  std::unique_ptr<std::byte[]> scratch_;  // reductions: two chunks of every peer
  bool copied_own_ = false, complete_ = false;
};

}  // namespace ingot
