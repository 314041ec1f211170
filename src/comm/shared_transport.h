// Messages through memory that the ranks of a node share (MPI windows, comm/mpi_world.cpp): faster than those of the MPI
// libraries, which copy through queues of their own (docs/parallel.md has figures).
//
// Every ordered pair of ranks has a ring of bytes for each stream (tag modulo 8 in Exchange: pieces, sums, pieces of single
// messages). The sender copies into it what fits, the receiver copies out what has come: both only while they ask whether a
// request is done, so a rank that computes moves nothing. A message goes as a frame (tag, bytes, data); only a request with
// the tag of the frame at the head takes it. So a receiver must not wait for a message without having asked for all that came
// before it in its stream: Exchange does not, since the ranks of a group start their operations in one order. Short messages
// and those to ranks elsewhere go through another transport.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "comm/messages.h"

namespace ingot {

class SharedTransport final : public Transport {
 public:
  static constexpr int64_t kShort =
      4000;  ///< the longest message that the other transport carries between ranks of a node

  /// Bytes of shared memory that each of `ranks` ranks of a group must have. Pages of rings that are not used are not touched.
  static int64_t region_bytes(int ranks);
  /// Makes a region ready; before any rank of the group uses it.
  static void prepare(std::byte* region, int ranks);

  /// `regions[r]`: rank r's, aligned to 64 bytes; nullptr: on another node. They must outlive this.
  SharedTransport(int rank, std::vector<std::byte*> regions, std::unique_ptr<Transport> others);

  Request send(int to, int tag, const void* data, int64_t bytes) override;
  Request recv(int from, int tag, void* data, int64_t bytes) override;
  /// Requests of one stream and tag must be asked in the order in which they were posted.
  bool done(Request request) override;

 private:
  struct Counters;
  /// One end of a ring.
  struct End {
    Counters* counters = nullptr;
    std::byte* data = nullptr;
    std::deque<size_t> queue;  ///< sends, oldest first
    int32_t tag = -1;          ///< of the frame that is being taken; -1: none
    int64_t bytes = 0;         ///< of that
  };
  struct Message {
    End* end = nullptr;
    bool sends = false, finished = false;
    int32_t tag = 0;
    std::byte* data = nullptr;
    int64_t bytes = 0, moved = 0;
    bool announced = false;  ///< its frame's head is in the ring
  };

  static int64_t ring_bytes(int ranks);
  bool shares_memory(int rank, int64_t bytes) const;
  Request post(Message message);
  void push(End& end);
  bool push(Message& message);
  void take(Message& message);
  void write(End& end, uint64_t at, const void* from, int64_t bytes) const;
  void read(const End& end, uint64_t at, void* to, int64_t bytes) const;

  int rank_;
  std::vector<std::byte*> regions_;
  std::unique_ptr<Transport> others_;
  uint64_t ring_;              ///< bytes of one
  std::vector<End> out_, in_;  ///< by peer and stream
  std::vector<Message> slots_;
  std::vector<size_t> free_;
};

}  // namespace ingot
